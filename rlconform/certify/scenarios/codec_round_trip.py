"""``StepBatch``: the rows of a step, written and read through the codec, and compared by id.

    check ── kv_first_write, write_columns ──▶ plane      the batch keeps a copy of the valid values
          ◀── read_columns ──                             each row must equal its copy, plus padding

If rlconform's codec rejects what a read returned, the rows are read again without it. If the rows
are wrong, that is a violation of the plane; if they are right, the codec's error is raised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_equal,
    expect_objects,
    leaf_of,
    row_difference,
    rows_in,
    same_object,
)
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import unless_refused
from rlconform.certify.scenarios.rollouts import PIXEL_VALUES, SyntheticRollout
from rlconform.contract import DataPlaneClient, KVBatchMeta, Tags, Target
from rlconform.contract.fields import (
    DP_TRAIN_FIELDS,
    INPUT_IDS,
    INPUT_LENGTHS,
    PER_TOKEN_FIELDS,
    TOTAL_REWARD,
)
from rlconform.plane.columns import kv_first_write, read_columns, write_columns
from rlconform.wire import (
    classify_leaf,
    is_object_column,
    object_rows,
    rebuild_message_logs,
    rows_of,
    stack_or_nest,
    strip_message_logs,
)

#: Column of the message logs, stripped of their token ids.
MESSAGE_LOG = "message_log"

#: Fields that a check of steps registers: the schema's columns and further ones that it writes.
STEP_FIELDS: tuple[str, ...] = (
    *DP_TRAIN_FIELDS,
    TOTAL_REWARD,
    PIXEL_VALUES,
    MESSAGE_LOG,
    "tokens",
    "routes",
    "hidden",
)

Pads = Mapping[str, complex]


class StepBatch:
    """N rows in a plane, with a copy of all values as last written, without padding.

    The columns are written through the codec: N padded rows with the column ``input_lengths``.
    ``token_fields`` names the per-token columns, also columns written back later.
    """

    def __init__(
        self,
        part: PartitionUnderTest,
        sample_ids: Sequence[str],
        columns: Mapping[str, Any] | TensorDictBase,
        token_fields: Collection[str] = PER_TOKEN_FIELDS,
        tags: Sequence[Tags] | None = None,
        extra_info: Mapping[str, Any] | None = None,
    ) -> None:
        self.part = part
        self.token_fields = frozenset(token_fields)
        self._rows: dict[str, dict[str, Any]] = {}
        self._objects: set[str] = set()
        self.meta = kv_first_write(
            partition_client(part),
            columns,
            sample_ids,
            part.id,
            token_fields=self.token_fields,
            tags=tags,
            extra_info=extra_info,
        )
        self.keep(self.meta, columns)

    def write_back(
        self, meta: KVBatchMeta, via: PartitionUnderTest | None = None, **columns: Tensor
    ) -> None:
        """Call ``write_columns`` for the meta's rows, and keep a copy of the values."""
        write_columns(
            partition_client(via or self.part), meta, columns, token_fields=self.token_fields
        )
        self.keep(meta, columns)

    def keep(self, meta: KVBatchMeta, columns: Mapping[str, Any] | TensorDictBase) -> None:
        """Keep a copy of columns; a check calls this only for puts without ``write_back``."""
        for field in map(str, columns.keys()):
            leaf: Any = columns.get(field)
            if is_object_column(leaf):
                self._objects.add(field)
                rows = object_rows(leaf, meta.size)
            else:
                rows = [row.clone() for row in rows_of(leaf)]
            if field in self.token_fields:
                lengths = meta.sequence_lengths or []
                rows = [row[:length] for row, length in zip(rows, lengths, strict=True)]
            self._rows.setdefault(field, {}).update(zip(meta.sample_ids, rows, strict=True))

    def has_column(self, field: str) -> bool:
        """Whether the column was written."""
        return field in self._rows

    def rows(self, ids: Sequence[str], field: str) -> list[Any]:
        """Return the kept rows of a column; rows of per-token columns have no padding."""
        return [self._rows[field][i] for i in ids]

    def meta_of(self, ids: Sequence[str]) -> KVBatchMeta:
        """Return the meta of some of the rows, in the order of ``ids``."""
        return self.meta.subset([self.meta.sample_ids.index(i) for i in ids])

    def read(
        self,
        ids: Sequence[str],
        fields: Sequence[str],
        width: int | None = None,
        pads: Pads | None = None,
        via: PartitionUnderTest | None = None,
    ) -> TensorDict:
        """Call ``read_columns`` with padding; wrong rows from the plane are a violation."""
        part = via or self.part
        try:
            return read_columns(
                partition_client(part),
                self.meta_of(ids),
                fields,
                pad_value_dict=pads,
                pad_to_seqlen=width,
                token_fields=self.token_fields & {*fields},
            )
        except (TypeError, ValueError):
            self._expect_unchanged(part, ids, fields)
            raise

    def expect_padded(
        self,
        ids: Sequence[str],
        fields: Sequence[str],
        width: int | None = None,
        pads: Pads | None = None,
        via: PartitionUnderTest | None = None,
    ) -> TensorDict:
        """Read rows and compare them, padded to ``width`` or the longest row; return the batch."""
        batch = self.read(ids, fields, width, pads, via)
        rows = {field: self.rows(ids, field) for field in fields}
        if width is None:
            width = max((len(r) for f in self.token_fields & {*fields} for r in rows[f]), default=0)
        for field in fields:
            expected = rows[field]
            if field in self.token_fields:
                expected = [padded(row, width, (pads or {}).get(field, 0)) for row in expected]
            expect_rows_by_id(batch, field, ids, expected)
        return batch

    def _expect_unchanged(
        self, part: PartitionUnderTest, ids: Sequence[str], fields: Sequence[str]
    ) -> None:
        batch = part.get(ids, *fields)
        for field in fields:
            rows = self.rows(ids, field)
            if field in self._objects:
                expect_objects(batch, field, rows)
            else:
                expect_rows_by_id(batch, field, ids, rows)


def expect_rows_by_id(
    batch: TensorDictBase, field: str, ids: Sequence[str], rows: Sequence[Tensor]
) -> None:
    """Expect ``batch[field]`` to hold these rows in this order; a violation names the row."""
    got_rows = rows_in(batch, field)
    expect(len(got_rows) == len(rows), f"{len(rows)} rows of {field!r}", f"{len(got_rows)} rows")
    for sample_id, got, want in zip(ids, got_rows, rows, strict=True):
        if difference := row_difference(got, want):
            raise ContractViolation(
                f"{field!r} of row {sample_id!r} {difference[0]}", difference[1]
            )


def write_with_logs(
    part: PartitionUnderTest, target: Target, rollout: SyntheticRollout
) -> StepBatch:
    """Write a step of token ids and, if the plane stores objects, of logs without token ids.

    A plane that does not declare objects may refuse the logs; the driver then keeps them.
    """
    tokens = {name: rollout.columns[name] for name in (INPUT_IDS, INPUT_LENGTHS)}
    logs = {MESSAGE_LOG: strip_message_logs(rollout.message_logs)}
    write = partial(StepBatch, part, rollout.sample_ids)
    return unless_refused(target, lambda: write(tokens | logs)) or write(tokens)


def expect_logs_rebuilt(
    step: StepBatch,
    rollout: SyntheticRollout,
    ids: Sequence[str],
    width: int | None = None,
    via: PartitionUnderTest | None = None,
) -> None:
    """Expect to rebuild these rows' logs unchanged, with token ids that are views of the batch."""
    by_id = dict(zip(rollout.sample_ids, rollout.message_logs, strict=True))
    logs = [by_id[i] for i in ids]
    stored = step.has_column(MESSAGE_LOG)
    batch = step.read(ids, [INPUT_IDS, *([MESSAGE_LOG] if stored else [])], width, via=via)
    stripped = batch.get(MESSAGE_LOG) if stored else strip_message_logs(logs)
    try:
        rebuilt = rebuild_message_logs(stripped, batch[INPUT_IDS])
    except (TypeError, ValueError) as error:
        raise ContractViolation(
            "message logs that fit their tokens", f"{shorten(repr(stripped))} ({error})"
        ) from error
    for sample_id, log, wanted in zip(ids, rebuilt, logs, strict=True):
        expect_equal(len(log), len(wanted), f"messages in the log of {sample_id!r}:")
        for turn, (got, want) in enumerate(zip(log, wanted, strict=True)):
            what = f"message {turn} of {sample_id!r} {shorten(repr(want))}"
            expect(same_object(got, want), what, got)
    memory = batch[INPUT_IDS].untyped_storage().data_ptr()
    held = {message["token_ids"].untyped_storage().data_ptr() for log in rebuilt for message in log}
    expect(held == {memory}, "token ids that are views of the batch", "copies of them")


def padded(row: Tensor, width: int, pad_value: complex) -> Tensor:
    """Return (j, ...) tokens padded to (width, ...)."""
    whole = torch.full((width, *row.shape[1:]), pad_value, dtype=row.dtype)
    whole[: len(row)] = row
    return whole


def partition_client(part: PartitionUnderTest) -> DataPlaneClient:
    """Return a client for the codec that makes its calls through ``part``."""
    return cast(DataPlaneClient, _CodecClient(part))


class _CodecClient:
    """The two client methods that the codec calls, made through a partition."""

    def __init__(self, part: PartitionUnderTest) -> None:
        self._part = part

    def put_samples(self, **call: Any) -> Any:
        return self._part.put_batch(call["sample_ids"], call["fields"], call.get("tags"))

    def get_samples(self, **call: Any) -> TensorDictBase:
        ids, fields = call["sample_ids"], call["select_fields"]
        batch = self._part.get(ids, *fields)
        expect_equal(tuple(batch.batch_size), (len(ids),), "a batch of size")
        columns = {field: _codec_column(batch, field) for field in fields}
        return TensorDict(columns, batch_size=[len(ids)])


def _codec_column(batch: TensorDictBase, field: str) -> Any:
    """Return the column as read; if the codec rejects its nested layout, nest its rows again."""
    leaf = leaf_of(batch, field)
    if not isinstance(leaf, Tensor):
        return leaf
    try:
        classify_leaf(leaf)
    except TypeError:
        return stack_or_nest(rows_in(batch, field))
    return leaf

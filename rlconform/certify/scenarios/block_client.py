"""``BlockClient``: a client for which each row of a check is a block of many rows of the plane.

    check ──put a, b──▶ BlockClient ──put a~0 ... a~259, b~0 ... b~259──▶ plane
          ◀──a, b─────               ◀──520 rows, those of a block alike──

A plane that pages, caps, hashes, pools or counts rows is right for the few rows of a check, and
wrong beyond a size. So checks of several processes run a second time, with blocks for rows.
"""

from __future__ import annotations

import math
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NoReturn

import torch
from tensordict import TensorDict, TensorDictBase

from rlconform.certify.assertions.expect import ContractViolation, FewerExamples
from rlconform.certify.recording.recorder import EndsCheck
from rlconform.certify.recording.snapshot import fingerprint
from rlconform.certify.scenarios.labeled_rows import jagged
from rlconform.contract import BatchMeta, KVBatchMeta
from rlconform.wire import object_array, object_rows
from rlconform.wire.leaves import classify_leaf, rows_of

_ROW_OF_BLOCK = re.compile(r"(?s)(.*)~\d+((?:_g\d+)?)")
_MEMBER = re.compile(r"(?s)(.*?)((?:_g\d+)?)")

#: Most rows and bytes of a put in blocks.
MOST_ROWS, MOST_BYTES = 8_000, 8 << 20


class TooLarge(Exception):
    """The error of a check that puts much already, and so can't have blocks for rows."""


class NoBlocks(EndsCheck):
    """Ends a run in blocks, which the plane does not allow; the usual run judges the check."""

    def __init__(self, why: str) -> None:
        warnings.warn(why, FewerExamples, stacklevel=3)
        super().__init__(why)


class CallsAtOnce:
    """Notes whether calls of a check have run at the same time; its clients share one.

    Only the fields of a row become visible together. Rows of one put may be claimed or read one by
    one while it runs, and those of two puts at once may be of either.
    """

    def __init__(self) -> None:
        self.seen = False
        self._running = 0
        self._lock = threading.Lock()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Note that the block's call runs."""
        with self._lock:
            self._running += 1
            self.seen = self.seen or self._running > 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1


class BlockClient:
    """The eight methods, each of which calls ``client`` with ``size`` rows in place of one.

    Rows of a group ``<uid>_g<number>`` become ``size`` groups. Other attributes are the client's.

    A part of a block, or a block whose rows differ, raises ``NoBlocks`` if the plane was free to
    return it: in a full claim, or once calls have run at the same time. Else it is a violation.
    """

    def __init__(self, client: Any, size: int, at_once: CallsAtOnce) -> None:
        self._client, self._size, self._at_once = client, size, at_once

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        **extra: Any,
    ) -> None:
        """Register the partition for ``size`` times as many rows."""
        self._client.register_partition(
            partition_id=partition_id,
            fields=fields,
            num_samples=num_samples * self._size,
            consumer_tasks=consumer_tasks,
            **extra,
        )

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[dict[str, Any]] | None = None,
    ) -> Any:
        """Put each row, and its tags, ``size`` times.

        Raises:
            TooLarge: The put would have very many rows or bytes.
        """
        self._expect_small(sample_ids, fields)
        receipt = self._call(
            "put_samples",
            sample_ids=self._blocks(sample_ids),
            partition_id=partition_id,
            **({} if fields is None else {"fields": self._repeated(fields)}),
            **({} if tags is None else {"tags": [deepcopy(row) for row in self._times(tags)]}),
        )
        return self._of_blocks(receipt)

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDictBase:
        """Read the blocks of the rows."""
        batch = self._call(
            "get_samples",
            sample_ids=self._blocks(sample_ids),
            partition_id=partition_id,
            select_fields=select_fields,
        )
        return self._firsts(batch, sample_ids)

    def claim_meta(self, partition_id: str, task_name: str, **how: Any) -> Any:
        """Claim ``size`` times as many rows."""
        asked = how["batch_size"] = how["batch_size"] * self._size
        meta = self._call("claim_meta", partition_id=partition_id, task_name=task_name, **how)
        return self._of_blocks(meta, asked)

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDictBase:
        """Read the blocks of a meta's rows."""
        whole = KVBatchMeta(
            meta.partition_id,
            meta.task_name,
            self._blocks(meta.sample_ids),
            fields=meta.fields,
            sequence_lengths=self._times(meta.sequence_lengths),
            extra_info=meta.extra_info,
            tags=self._times(meta.tags),
        )
        batch = self._call("get_data", meta=whole, select_fields=select_fields)
        return self._firsts(batch, meta.sample_ids)

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Clear the blocks of the rows, or all that the process has put."""
        ids = None if sample_ids is None else self._blocks(sample_ids)
        self._call("clear_samples", sample_ids=ids, partition_id=partition_id)

    def _call(self, method: str, **arguments: Any) -> Any:
        with self._at_once.call():
            return getattr(self._client, method)(**arguments)

    def _expect_small(self, ids: Sequence[str], fields: TensorDict | None) -> None:
        put_bytes = 0 if fields is None else fields.bytes()
        if len(ids) > MOST_ROWS // self._size or put_bytes > MOST_BYTES // self._size:
            raise TooLarge(
                f"{len(ids)} rows, {put_bytes} bytes: mark the check with pytest.mark.large"
            )

    def _blocks(self, ids: Sequence[str]) -> list[str]:
        parts = [(found[1], found[2]) for found in map(_MEMBER.fullmatch, ids) if found]
        return [f"{stem}~{n}{member}" for stem, member in parts for n in range(self._size)]

    def _times(self, values: Sequence[Any] | None) -> Any:
        return None if values is None else [each for each in values for _ in range(self._size)]

    def _repeated(self, batch: TensorDictBase) -> TensorDict:
        n = batch.batch_size[0]
        leaves: dict[str, Any] = {}
        for name in batch.keys():  # noqa: SIM118 - iterating over a TensorDict unbinds it
            leaf = batch.get(name)
            match classify_leaf(leaf):
                case "object":
                    leaves[name] = object_array(
                        [deepcopy(row) for row in self._times(object_rows(leaf, n))]
                    )
                case "jagged":
                    leaves[name] = jagged(self._times(rows_of(leaf)))
                case "dense":
                    apart = leaf.unsqueeze(1).expand(n, self._size, *leaf.shape[1:])
                    leaves[name] = apart.reshape(n * self._size, *leaf.shape[1:])
        return TensorDict(leaves, batch_size=[n * self._size])

    def _firsts(self, batch: TensorDictBase, ids: Sequence[str]) -> TensorDictBase:
        """Return the first row of each block; the others must be alike."""
        n = len(ids) * self._size
        if tuple(batch.batch_size) != (n,):
            return batch
        leaves: dict[str, Any] = {}
        for name in batch.keys():  # noqa: SIM118 - as above
            leaf = batch.get(name)
            tensor = isinstance(leaf, torch.Tensor)
            rows = rows_of(leaf) if tensor else object_rows(leaf, n)
            if len(rows) == n:
                self._expect_alike(rows, ids, name)
            firsts = rows[:: self._size]
            if not tensor:
                leaves[name] = object_array(firsts)
            else:
                leaves[name] = jagged(firsts) if leaf.is_nested else leaf[:: self._size]
        return TensorDict(leaves, batch_size=[len(ids)])

    def _expect_alike(self, rows: Sequence[Any], ids: Sequence[str], what: str) -> None:
        prints = list(map(fingerprint, rows))
        for number, sample_id in enumerate(ids):
            block = prints[number * self._size : (number + 1) * self._size]
            other = next((n for n, each in enumerate(block) if each != block[0]), 0)
            if other:
                at = number * self._size
                due = f"{self._size} equal values of {what!r} put for {sample_id!r} to stay equal"
                got = f"{rows[at + other]!r} in place {other}, not {rows[at]!r}"
                self._refuse(due, got)

    def _refuse(self, due: str, got: str, *, free: bool = False, leans_on: str = "") -> NoReturn:
        """Raise ``NoBlocks`` if the plane was free to return this, else a violation."""
        if free or self._at_once.seen:
            raise NoBlocks("rows that were put at once are claimed or overwritten apart")
        raise ContractViolation(due, got, leans_on=(leans_on,) if leans_on else ())

    def _of_blocks(self, meta: BatchMeta, most: float = math.inf) -> Any:
        """Return the meta of the blocks' rows; a claim of ``most`` rows may have a part of one."""
        blocks: dict[str, list[int]] = {}
        for place, sample_id in enumerate(meta.sample_ids):
            found = _ROW_OF_BLOCK.fullmatch(sample_id)
            blocks.setdefault(found[1] + found[2] if found else sample_id, []).append(place)
        for sample_id, places in blocks.items():
            if len(places) == self._size:
                continue
            due = f"all of the {self._size} rows of {sample_id!r}, which were put at once"
            full = len(meta.sample_ids) >= most
            self._refuse(due, f"{len(places)} of them", free=full, leans_on="CLAIM-04")
        if len(blocks) * self._size == len(meta.sample_ids):
            for values, what in ((meta.tags, "tags"), (meta.sequence_lengths, "sequence_lengths")):
                if values is not None:
                    ordered = [values[place] for places in blocks.values() for place in places]
                    self._expect_alike(ordered, list(blocks), what)
        firsts = KVBatchMeta.of(meta).subset(places[0] for places in blocks.values())
        return KVBatchMeta(
            firsts.partition_id,
            firsts.task_name,
            list(blocks),
            fields=firsts.fields,
            sequence_lengths=firsts.sequence_lengths,
            extra_info=firsts.extra_info,
            tags=firsts.tags,
        )

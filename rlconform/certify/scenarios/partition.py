"""``PartitionUnderTest``: short methods for the client calls on one fresh partition.

Each method makes one call with the contract's keywords, and validates the result before a check
relies on it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from rlconform.certify.assertions.expect import (
    LAST_CALL,
    ContractViolation,
    Expectation,
    FewerExamples,
    expect,
    expect_column,
    expect_equal,
    records_expectation,
)
from rlconform.certify.recording.recorder import TRANSPORT_S
from rlconform.certify.scenarios.labeled_rows import labeled_column, labeled_rows
from rlconform.certify.scenarios.normalize_metas import meta_of, status_of
from rlconform.certify.scenarios.partition_log import PartitionLog
from rlconform.contract import BatchMeta, DataPlaneClient, KVBatchMeta, Tags, Timeouts
from rlconform.wire import object_array

#: A field that no check registers; only REG-02 says what a plane does with one.
UNDECLARED = "undeclared"
#: Fields and tasks that a check registers by default.
FIELDS = ("x", "y", "z")
TASKS = ("train", "prev_lp")


class PartitionUnderTest:
    """A partition, called through one client."""

    def __init__(
        self,
        client: DataPlaneClient,
        partition_id: str,
        timeouts: Timeouts,
        rows: PartitionLog | None = None,
    ) -> None:
        self.client = client
        self.id = partition_id
        self.timeouts = timeouts
        self._rows = PartitionLog() if rows is None else rows

    @property
    def ids(self) -> set[str]:
        """Every id that the check used, for the clean-up."""
        return self._rows.ids

    def via(self, client: DataPlaneClient) -> PartitionUnderTest:
        """Return the same partition, called through another client."""
        return PartitionUnderTest(client, self.id, self.timeouts, self._rows)

    @property
    def transport_s(self) -> float:
        """Seconds that rlconform allows to send a call to another process and its result back."""
        return TRANSPORT_S if getattr(self.client, "is_remote", False) else 0.0

    @property
    def call_s(self) -> float:
        """Seconds that a check waits for one call: ``operation`` for the plane, and transport."""
        return self.timeouts.operation + self.transport_s

    @property
    def last_end(self) -> float:
        """When this thread's last call ended in the process that made it, in seconds."""
        return self.client.last_end  # type: ignore[attr-defined, no-any-return]

    def rounds(self, most: int, time_share: float = 1 / 6) -> Iterator[int]:
        """Yield up to ``most`` round numbers; a slow plane gets fewer, and the report says so.

        ``time_share``: the part of a check's time in which the rounds begin.
        """
        end = time.monotonic() + self.timeouts.check * time_share
        for n in range(most):
            yield n
            if time.monotonic() > end and n + 1 < most:
                text = f"time for {n + 1} of {most} rounds only"
                warnings.warn(text, FewerExamples, stacklevel=2)
                return

    def note_ids(self, ids: Iterable[str]) -> None:
        """Record rows that another client puts, for the clean-up."""
        self._rows.touch(ids)

    def forget_results(self) -> None:
        """Let the recording keep no result of earlier calls, as the check measures memory."""
        self.client.recording.forget_results()  # type: ignore[attr-defined]

    def register(
        self,
        fields: Sequence[str] = FIELDS,
        tasks: Sequence[str] = TASKS,
        num_samples: int = 64,
        **extra: Any,
    ) -> None:
        """Call ``register_partition``."""
        self.client.register_partition(
            partition_id=self.id,
            fields=list(fields),
            num_samples=num_samples,
            consumer_tasks=list(tasks),
            **extra,
        )

    def put(
        self, ids: Sequence[str], tags: Sequence[Tags] | None = None, **columns: Any
    ) -> BatchMeta:
        """Call ``put_samples`` with the given columns."""
        return self.put_batch(ids, batch_of(columns, len(ids)) if columns else None, tags)

    def put_batch(
        self, ids: Sequence[str], fields: TensorDict | None, tags: Sequence[Tags] | None = None
    ) -> BatchMeta:
        """Call ``put_samples`` with an unchanged batch, valid or not."""
        self._rows.touch(ids)
        names = [] if fields is None else list(map(str, fields.keys()))
        extra = {} if tags is None else {"tags": list(tags)}
        receipt = self.client.put_samples(
            sample_ids=list(ids), partition_id=self.id, fields=fields, **extra
        )
        self._rows.put(ids, names)
        return meta_of(receipt, "put_samples")

    def put_labeled(
        self, ids: Sequence[str], *fields: str, version: int = 0, tags: Sequence[Tags] | None = None
    ) -> BatchMeta:
        """Put labelled rows into each of ``fields`` (default ``x``)."""
        names = fields or ("x",)
        columns = {field: labeled_column(self.id, ids, field, version) for field in names}
        return self.put(ids, tags, **columns)

    def get(self, ids: Sequence[str], *fields: str) -> TensorDictBase:
        """Call ``get_samples``; a result that is no TensorDict is a violation."""
        batch = self.client.get_samples(
            sample_ids=list(ids), partition_id=self.id, select_fields=list(fields)
        )
        return _batch(batch, "get_samples")

    def get_data(self, meta: Any, select_fields: Sequence[str] | None = None) -> TensorDictBase:
        """Call ``get_data``."""
        chosen = None if select_fields is None else list(select_fields)
        return _batch(self.client.get_data(meta, select_fields=chosen), "get_data")

    def claim(
        self,
        task: str = "train",
        fields: Sequence[str] = ("x",),
        batch_size: int | None = None,
        *,
        blocking: bool = False,
        timeout_s: float | None = None,
        dp_rank: int | None = None,
    ) -> BatchMeta:
        """Call ``claim_meta``, by default not blocking; a claim with an id twice is a violation.

        Without a ``batch_size`` it requests exactly as many rows as are ready, and then one more
        row, which must not be ready. Only CLAIM-04 judges whether a plane serves a claim of more
        rows than are ready.
        """
        timeout_s = self.timeouts.operation if timeout_s is None else timeout_s
        how = {"dp_rank": dp_rank, "blocking": blocking, "timeout_s": timeout_s}
        asked = batch_size or max(1, self._rows.ready(task, fields))
        meta = self._claim(task, fields, asked, how)
        exact = batch_size is None and not blocking
        if exact and meta.sample_ids and self._rows.has_others(meta.sample_ids):
            further = self._claim(task, fields, 1, how).sample_ids
            due = f"no row ready for {task!r} beside {meta.sample_ids}"
            expect(not further, due, further, leans_on=("CLAIM-01",))
        return meta

    def _claim(
        self, task: str, fields: Sequence[str], batch_size: int, how: Mapping[str, Any]
    ) -> BatchMeta:
        claimed = self.client.claim_meta(
            partition_id=self.id,
            task_name=task,
            required_fields=list(fields),
            batch_size=batch_size,
            **how,
        )
        meta = meta_of(claimed, "claim_meta")
        ids = meta.sample_ids
        self._rows.claim(task, ids)
        expect(len(set(ids)) == len(ids), "each id once in a claim", ids, leans_on=("CLAIM-02",))
        due = f"at most {batch_size} rows claimed"
        expect(len(ids) <= batch_size, due, f"{len(ids)}: {ids}", leans_on=("CLAIM-01",))
        return meta

    def claim_all(
        self,
        task: str = "train",
        fields: Sequence[str] = ("x",),
        batch_size: int = 1,
        *,
        dp_rank: int | None = None,
    ) -> list[str]:
        """Claim up to ``batch_size`` rows at a time until none is left; return the ids in order."""
        claimed: list[str] = []
        while True:
            asked = max(1, min(batch_size, self._rows.ready(task, fields)))
            ids = self.claim(task, fields, asked, dp_rank=dp_rank).sample_ids
            if not ids:
                return claimed
            claimed += ids

    def consumed(self, *tasks: str) -> bool:
        """Call ``check_consumption_status``; a result that is no bool is a violation."""
        names = list(tasks or ("train",))
        return status_of(
            self.client.check_consumption_status(partition_id=self.id, task_names=names)
        )

    def clear(self, ids: Sequence[str] | None) -> None:
        """Call ``clear_samples``."""
        rows = None if ids is None else list(ids)
        self.client.clear_samples(sample_ids=rows, partition_id=self.id)
        self._rows.clear(ids)

    def expect_rows(self, ids: Sequence[str], **columns: Sequence[torch.Tensor]) -> None:
        """Expect a read of ``ids`` to return these rows."""
        _expect_columns(self.get(ids, *columns), columns)

    def expect_rows_by_meta(self, ids: Sequence[str], **columns: Sequence[torch.Tensor]) -> None:
        """Expect ``get_data`` of a meta of ``ids`` and these fields to return these rows."""
        meta = KVBatchMeta(self.id, None, list(ids), fields=list(columns))
        try:
            _expect_columns(self.get_data(meta), columns)
        except ContractViolation as violation:
            by_meta = ContractViolation(f"of get_data: {violation.expected}", violation.got)
            by_meta.expectations = violation.expectations
            raise by_meta from None

    def expect_labeled(self, ids: Sequence[str], *fields: str, version: int = 0) -> None:
        """Expect a read of ``ids`` to return their labelled rows."""
        names = fields or ("x",)
        rows = {field: labeled_rows(self.id, ids, field, version) for field in names}
        self.expect_rows(ids, **rows)

    def expect_absent(self, ids: Sequence[str], field: str = "x") -> None:
        """Expect the rows to be unreadable, and not claimable by a task that never claimed."""
        for sample_id in ids:
            expect_unreadable(partial(self.get, [sample_id], field), sample_id, field)
        try:
            claimed = set(self.claim_all("prev_lp", [field])) & set(ids)
        except ContractViolation:
            raise
        except Exception:  # noqa: BLE001 - a plane may refuse a claim by an unknown field
            return
        expect(not claimed, f"none of {list(ids)} to be claimable", f"claimed {sorted(claimed)}")


def expect_unreadable(read: Callable[[], TensorDictBase], sample_id: str, field: str) -> None:
    """Expect a read not to return the row; GET-04 to GET-06 judge which error it raises."""
    try:
        batch = read()
    except ContractViolation:
        raise  # it returned something else, or hung
    except Exception:  # noqa: BLE001 - a plane may raise anything
        return
    rows = batch.batch_size[0] if batch.batch_size else 0
    if rows and field in batch.keys():  # noqa: SIM118 - a TensorDict's own `in` refuses strings
        unreadable = f"{field!r} of {sample_id!r} not to be readable"
        violation = ContractViolation(unreadable, f"{rows} rows")
        expected = Expectation("expect_unreadable", (LAST_CALL, sample_id, field))
        violation.expectations.append(expected)
        raise violation


def batch_of(columns: Mapping[str, Any], size: int) -> TensorDict:
    """Build a batch to put; lists become object columns (numpy object arrays)."""
    return TensorDict(
        {
            name: object_array(value) if isinstance(value, list) else value
            for name, value in columns.items()
        },
        batch_size=[size],
    )


@records_expectation
def expect_ids(meta: BatchMeta, ids: Sequence[str], what: str) -> None:
    """Expect the meta to name exactly ``ids``, in any order."""
    expect_equal(sorted(meta.sample_ids), sorted(ids), what)


def _expect_columns(batch: TensorDictBase, columns: Mapping[str, Sequence[torch.Tensor]]) -> None:
    for field, rows in columns.items():
        expect_column(batch, field, rows)


def _batch(result: Any, method: str) -> TensorDictBase:
    expect(isinstance(result, TensorDictBase), f"{method} to return a TensorDict", repr(result))
    return result  # type: ignore[no-any-return]

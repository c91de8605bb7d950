"""``MetricsClient``: wraps a client and reports the size and duration of every operation.

    client = MetricsClient(client, log.append)
    client.put_samples(...)  # the same call, and one MetricEvent in the log
    client.totals()["train"].outstanding_bytes

Bytes are counted from shapes (elements times element size); object columns count as zero, since
only the plane knows how it encodes them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from tensordict import TensorDict, TensorDictBase
from torch import Tensor, jagged, strided

from rlconform.contract import BatchMeta, DataPlaneClient, Tags
from rlconform.wire import rows_of

Status = Literal["ok", "error", "timeout"]


@dataclass(frozen=True, slots=True)
class MetricEvent:
    """One call of a client.

    Attributes:
        op: The client's method.
        partition: Its partition; ``None`` for ``close``.
        n_keys: Rows that it wrote, read, claimed or cleared, or would have if it raised.
        n_bytes: Bytes that it wrote, read, or freed by a clear.
        wall_ms: Milliseconds until the client returned or raised.
        status: ``timeout`` for a ``TimeoutError``, ``error`` for any other exception.
    """

    op: str
    partition: str | None
    n_keys: int
    n_bytes: int
    wall_ms: float
    status: Status


@dataclass(frozen=True, slots=True)
class PartitionTotals:
    """One client's data in a partition.

    Attributes:
        rows: Rows that it put and didn't clear.
        outstanding_bytes: Bytes of their newest values.
        peak_bytes: Maximum of ``outstanding_bytes`` so far.
    """

    rows: int
    outstanding_bytes: int
    peak_bytes: int


class MetricsClient:
    """A client that wraps another and passes on all results and exceptions.

    Totals count this client's operations only: rows that others put or clear are not counted, and
    ``clear_samples(None)`` removes all of this client's rows.

    Args:
        client: Any client; it is closed with this one.
        callback: Called with each ``MetricEvent`` after the operation, in the thread of the call,
            possibly by several threads at once. Its exceptions reach the caller, although the
            operation took effect: a run whose metrics are broken should stop.
    """

    def __init__(self, client: DataPlaneClient, callback: Callable[[MetricEvent], object]) -> None:
        self._client = client
        self._callback = callback
        self._lock = threading.Lock()
        self._partitions: dict[str, _PartitionSizes] = {}

    def totals(self) -> dict[str, PartitionTotals]:
        """Totals by partition, as of now."""
        with self._lock:
            return {name: sizes.totals() for name, sizes in self._partitions.items()}

    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> None:
        """Declare a partition's fields and consumer tasks."""
        with self._measured("register_partition", partition_id):
            self._client.register_partition(
                partition_id=partition_id,
                fields=fields,
                num_samples=num_samples,
                consumer_tasks=consumer_tasks,
                grpo_group_size=grpo_group_size,
                enums=enums,
            )

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> BatchMeta:
        """Write columns, tags, or both."""
        sizes = _sizes_by_field(fields)
        with self._measured("put_samples", partition_id, sample_ids) as moved:
            moved.n_bytes = sum(map(sum, sizes.values()))
            receipt = self._client.put_samples(
                sample_ids=sample_ids, partition_id=partition_id, fields=fields, tags=tags
            )
            with self._lock:
                self._partitions.setdefault(partition_id, _PartitionSizes()).put(sample_ids, sizes)
        return receipt

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read fields of rows."""
        with self._measured("get_samples", partition_id, sample_ids) as moved:
            batch = self._client.get_samples(
                sample_ids=sample_ids, partition_id=partition_id, select_fields=select_fields
            )
            moved.n_bytes = _batch_bytes(batch)
        return batch

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: list[str],
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> BatchMeta:
        """Hand ready rows to a task."""
        with self._measured("claim_meta", partition_id) as moved:
            moved.n_keys = batch_size if isinstance(batch_size, int) else 0
            meta = self._client.claim_meta(
                partition_id=partition_id,
                task_name=task_name,
                required_fields=required_fields,
                batch_size=batch_size,
                dp_rank=dp_rank,
                blocking=blocking,
                timeout_s=timeout_s,
            )
            moved.n_keys = len(meta.sample_ids)
        return meta

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read a meta's rows."""
        partition = getattr(meta, "partition_id", None)
        sample_ids = getattr(meta, "sample_ids", None)
        with self._measured("get_data", partition, sample_ids) as moved:
            batch = self._client.get_data(meta, select_fields=select_fields)
            moved.n_bytes = _batch_bytes(batch)
        return batch

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """Whether every produced row was claimed by every named task."""
        with self._measured("check_consumption_status", partition_id):
            return self._client.check_consumption_status(
                partition_id=partition_id, task_names=task_names
            )

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Drop rows; ``None`` drops what this process put."""
        with self._measured("clear_samples", partition_id, sample_ids) as moved:
            self._client.clear_samples(sample_ids=sample_ids, partition_id=partition_id)
            with self._lock:
                sizes = self._partitions.get(partition_id, _PartitionSizes())
                cleared = list(sizes.rows) if sample_ids is None else sample_ids
                moved.n_keys = len(cleared)
                moved.n_bytes = sizes.clear(cleared)

    def close(self) -> None:
        """Close the client inside."""
        with self._measured("close", None):
            self._client.close()

    @contextmanager
    def _measured(
        self, op: str, partition: str | None, sample_ids: object = None
    ) -> Iterator[_Moved]:
        """Report the call made inside, whether it returns or raises."""
        moved = _Moved(n_keys=len(sample_ids) if isinstance(sample_ids, Sized) else 0)
        status: Status = "error"
        started = time.perf_counter()
        try:
            yield moved
            status = "ok"
        except TimeoutError:
            status = "timeout"
            raise
        finally:
            wall_ms = (time.perf_counter() - started) * 1e3
            self._callback(MetricEvent(op, partition, moved.n_keys, moved.n_bytes, wall_ms, status))


@dataclass(slots=True)
class _Moved:
    """An operation's size, set as soon as it is known."""

    n_keys: int = 0
    n_bytes: int = 0


class _PartitionSizes:
    """Bytes of each row's fields in one partition."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, int]] = {}
        self._outstanding = 0
        self._peak = 0

    def totals(self) -> PartitionTotals:
        return PartitionTotals(len(self.rows), self._outstanding, self._peak)

    def put(self, sample_ids: Sequence[str], sizes: Mapping[str, Sequence[int]]) -> None:
        """Replace the sizes of fields that were written."""
        for index, sample_id in enumerate(sample_ids):
            row = self.rows.setdefault(sample_id, {})
            for name, of_rows in sizes.items():
                self._outstanding += of_rows[index] - row.get(name, 0)
                row[name] = of_rows[index]
        self._peak = max(self._peak, self._outstanding)

    def clear(self, sample_ids: Sequence[str]) -> int:
        """Remove rows, ignoring unknown ones; returns their bytes."""
        freed = sum(sum(self.rows.pop(sample_id, {}).values()) for sample_id in sample_ids)
        self._outstanding -= freed
        return freed


def _sizes_by_field(fields: object) -> dict[str, list[int]]:
    """Bytes of each row, by field; empty for what isn't a batch, which the client refuses."""
    if not isinstance(fields, TensorDictBase) or len(fields.batch_size) != 1:
        return {}
    n_rows = fields.batch_size[0]
    return {name: _row_sizes(fields.get(name), n_rows) for name in map(str, fields.keys())}


def _row_sizes(leaf: object, n_rows: int) -> list[int]:
    """Bytes of each row of a leaf; zeros for what isn't a dense or jagged tensor."""
    if not isinstance(leaf, Tensor) or leaf.layout not in {strided, jagged}:
        return [0] * n_rows
    if leaf.is_nested:
        return [row.numel() * row.element_size() for row in rows_of(leaf)]
    return [leaf.numel() * leaf.element_size() // n_rows] * n_rows if n_rows else []


def _batch_bytes(batch: TensorDict) -> int:
    return sum(map(sum, _sizes_by_field(batch).values()))

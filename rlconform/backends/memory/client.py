"""``MemoryClient``: the plane of one process, the reference that other planes are held against.

    MemoryClient ──checks arguments, copies tensors──▶ (one lock) ──▶ Partition
         ▲                                                │
         └────────── put, register, close wake ◀──────────┘
                     the claims that wait

Only the lock's holder touches a partition, and nothing is copied under the lock: a put copies
before it takes the lock, a read joins the cells after it let go, as a cell never changes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tensordict import TensorDict

from rlconform.backends import arguments
from rlconform.backends.config import DataPlaneConfig, parse_data_plane
from rlconform.backends.memory.cells import join_columns, split_columns
from rlconform.backends.memory.partition import Partition
from rlconform.backends.memory.plane import newest_plane, start_plane, stop_plane
from rlconform.backends.memory.rows import claimed_meta
from rlconform.contract import (
    BatchMeta,
    CapacityExceeded,
    ClientClosed,
    ConfigError,
    KVBatchMeta,
    PlaneUnavailable,
    Tags,
    UnknownPartition,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class MemoryClient:
    """A client of the plane in this process's memory; its methods may be called from any thread.

    >>> owner = MemoryClient()
    >>> worker = MemoryClient(bootstrap=False)  # the newest plane of this process
    >>> owner.register_partition("train", ["x"], 2, ["train"])
    >>> worker.put_samples(["a", "b"], "train", TensorDict({"x": torch.arange(2)}, [2]))
    >>> meta = owner.claim_meta("train", "train", ["x"], batch_size=2)
    >>> owner.get_data(meta)["x"]
    tensor([0, 1])
    >>> owner.close()  # ends the plane; the worker gets PlaneUnavailable from now on

    In a partition with ``grpo_group_size=G`` a claim hands out whole groups. A group is G rows
    ``<uid>_g<i>`` with the same uid and the same ``i // G``; rows whose ids don't end in ``_g<i>``
    are grouped by G in the order in which they came.

    Args:
        cfg: A ``data_plane`` block, or nothing. Its ``storage_capacity`` limits the rows of the
            whole plane; without it there is no limit.
        bootstrap: Start a plane, or attach to the one started last in this process.

    Raises:
        ConfigError: The block can't be used or is another implementation's.
        PlaneUnavailable: There is no plane to attach to.
    """

    def __init__(
        self, cfg: DataPlaneConfig | Mapping[str, Any] | None = None, bootstrap: bool = True
    ) -> None:
        self._owner = arguments.flag("bootstrap", bootstrap)
        capacity = _capacity(cfg)
        self._plane = start_plane(capacity) if bootstrap else newest_plane()
        self._closed = False

    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> None:
        """Declare a partition's consumer tasks and group size; fields may be any, declared or not.

        Registering an empty partition starts it anew. Registering one that holds rows adds the
        tasks and leaves rows and cursors as they are.

        Raises:
            ValueError: A malformed argument, or another group size while there are rows.
        """
        arguments.text("partition_id", partition_id)
        arguments.texts("fields", fields, unique=True)
        arguments.whole("num_samples", num_samples, least=0)
        tasks = arguments.texts("consumer_tasks", consumer_tasks, unique=True)
        group_size = 1
        if grpo_group_size is not None:
            group_size = arguments.whole("grpo_group_size", grpo_group_size, least=1)
        arguments.enumerations(enums)
        with self._locked() as partitions:
            partitions.setdefault(partition_id, Partition()).register(tasks, group_size)
            self._plane.changed.notify_all()

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Write columns, tags, or both; the plane keeps copies, on the CPU and without grad.

        Rows of a field share one dtype: a put may change it only by replacing all of them.

        Raises:
            ValueError: A malformed argument, a batch size or a number of tags other than N, or a
                dtype other than that of rows which stay.
            TypeError: A leaf that is no dense tensor, jagged tensor or object column.
            CapacityExceeded: The plane has no room for the new rows.
        """
        sample_ids = arguments.texts("sample_ids", sample_ids, unique=True)
        arguments.text("partition_id", partition_id)
        columns = split_columns(fields, len(sample_ids))
        tag_rows = arguments.tag_rows(tags, len(sample_ids))
        if fields is None and tags is None:
            raise ValueError("put_samples needs fields or tags")
        with self._locked() as partitions:
            if sample_ids:
                partition = partitions.get(partition_id, Partition())
                self._check_room(partition.count_new(sample_ids))
                partition.put(sample_ids, columns, tag_rows)
                partitions[partition_id] = partition
                self._plane.changed.notify_all()
        return KVBatchMeta(partition_id, None, sample_ids, fields=list(columns))

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read fields of rows in the order asked, a repeated id repeatedly; batch size ``(N,)``.

        A field comes back jagged if its rows were put jagged or differ in length, else dense. An
        empty list of ids gives an empty batch without columns.

        Raises:
            LookupError: An unknown partition or id, or a field not produced for every id.
            ValueError: A malformed argument, or rows whose shapes no one tensor can hold.
        """
        sample_ids = arguments.texts("sample_ids", sample_ids)
        arguments.text("partition_id", partition_id)
        names = arguments.texts("select_fields", select_fields, least=1)
        with self._locked() as partitions:
            columns = {}
            if sample_ids:
                columns = _known(partitions, partition_id).read(sample_ids, names)
        return join_columns(columns, len(sample_ids))

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: list[str],
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> KVBatchMeta:
        """Hand ready rows to a task, oldest first, each once; any ``dp_rank`` shares the cursor.

        A blocking claim gives exactly ``batch_size`` rows, another one 0 to ``batch_size``.

        Raises:
            TimeoutError: ``timeout_s`` seconds went by; nothing is claimed.
            LookupError: An unknown partition or task.
            ValueError: A malformed argument, or a blocking claim that whole groups can't fill.
        """
        arguments.text("partition_id", partition_id)
        arguments.text("task_name", task_name)
        names = arguments.texts("required_fields", required_fields, least=1)
        batch_size = arguments.whole("batch_size", batch_size, least=1)
        if dp_rank is not None:
            arguments.whole("dp_rank", dp_rank, least=0)
        arguments.flag("blocking", blocking)
        deadline = time.monotonic() + arguments.seconds("timeout_s", timeout_s)
        required = frozenset(names)
        with self._locked() as partitions:
            if blocking:
                self._wait_until_ready(partition_id, task_name, required, batch_size, deadline)
            partition = _known(partitions, partition_id)
            rows = partition.claim(task_name, required, partition.groups_in(batch_size))
            return claimed_meta(partition_id, task_name, names, rows)

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read a meta's rows: ``select_fields``, else ``meta.fields``, else ``ValueError``."""
        if not isinstance(meta, BatchMeta):
            raise TypeError(f"meta must name rows of a partition, got {type(meta).__name__}")
        names = meta.fields if select_fields is None else select_fields
        if not names:
            raise ValueError("get_data: neither select_fields nor meta.fields names a field")
        return self.get_samples(meta.sample_ids, meta.partition_id, names)

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """Whether every produced row was claimed by every named task.

        False while nothing was produced since the partition was registered, and for a partition or
        task that isn't known. Rows that were cleared or carry tags only don't count.
        """
        arguments.text("partition_id", partition_id)
        names = arguments.texts("task_names", task_names, least=1)
        with self._locked() as partitions:
            partition = partitions.get(partition_id)
            return partition is not None and partition.all_claimed(names)

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Drop rows with tags and cursors; with None all of them, as one process put them all."""
        if sample_ids is not None:
            sample_ids = arguments.texts("sample_ids", sample_ids)
        arguments.text("partition_id", partition_id)
        with self._locked() as partitions:
            partition = partitions.get(partition_id)
            if partition is None:
                return
            if sample_ids is None:
                partition.clear_all()
            else:
                partition.clear(sample_ids)

    def close(self) -> None:
        """Let go of the plane. The owner's close ends it, with everything in it."""
        with self._plane.changed:
            self._closed = True
            if self._owner:
                self._plane.closed = True
                self._plane.partitions.clear()
            self._plane.changed.notify_all()
        if self._owner:
            stop_plane(self._plane)

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Partition]]:
        """The plane's partitions, under its lock."""
        with self._plane.changed:
            self._check_open()
            yield self._plane.partitions

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("this client was closed")
        if self._plane.closed:
            raise PlaneUnavailable("the plane's owner closed it")

    def _check_room(self, new_rows: int) -> None:
        capacity = self._plane.capacity
        if capacity is None:
            return
        held = sum(partition.size for partition in self._plane.partitions.values())
        if held + new_rows > capacity:
            raise CapacityExceeded(
                f"{new_rows} new rows beside {held}: the plane holds {capacity} at most"
            )

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, deadline: float
    ) -> None:
        """Wait, holding the lock, until ``rows`` rows can be claimed."""
        while True:
            partition = _known(self._plane.partitions, partition_id)
            partition.check_exact(rows)
            if partition.ready_groups(task, required) >= partition.groups_in(rows):
                return
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(
                    f"{partition_id!r} has no {rows} rows with {sorted(required)} for task {task!r}"
                )
            self._plane.changed.wait(min(remaining, threading.TIMEOUT_MAX))
            self._check_open()


def _capacity(cfg: DataPlaneConfig | Mapping[str, Any] | None) -> int | None:
    if not cfg:
        return None
    config = cfg if isinstance(cfg, DataPlaneConfig) else parse_data_plane(cfg)
    if config.impl != "memory":
        raise ConfigError(f"data_plane.impl is {config.impl!r}: this is the memory plane")
    return config.storage_capacity


def _known(partitions: Mapping[str, Partition], partition_id: str) -> Partition:
    partition = partitions.get(partition_id)
    if partition is None:
        raise UnknownPartition(f"partition {partition_id!r} was never registered nor written")
    return partition

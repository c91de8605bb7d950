"""``TransferQueueClient``: the contract over TransferQueue, with either of its storage engines.

    TransferQueueClient ──checks arguments──▶ Store ──bytes──▶ TransferQueue's storage
                                                └──what must be atomic──▶ Ledger, in its controller

Start at ``store.py`` for how a put, a read and a clear go.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from tensordict import TensorDict, TensorDictBase

from rlconform.backends import arguments
from rlconform.backends.config import DataPlaneConfig, TransferQueueConfig, parse_data_plane
from rlconform.contract import (
    BatchMeta,
    ConfigError,
    KVBatchMeta,
    Tags,
)
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.contract.target import PlaneControl

if TYPE_CHECKING:
    from rlconform.backends.transfer_queue.frames import Rows


class TransferQueueClient:
    """A client of a TransferQueue; its methods may be called from any thread.

    >>> owner = TransferQueueClient(cfg)                       # starts the plane
    >>> worker = TransferQueueClient(cfg, bootstrap=False)     # in a Ray actor of the same cluster
    >>> owner.register_partition("train", ["x"], 2, ["train"])
    >>> worker.put_samples(["a", "b"], "train", TensorDict({"x": torch.arange(2)}, [2]))
    >>> owner.get_data(owner.claim_meta("train", "train", ["x"], batch_size=2))["x"]
    tensor([0, 1])
    >>> worker.close()  # ends this client only
    >>> owner.close()   # ends the plane

    In a partition with ``grpo_group_size=G`` a claim hands out whole groups. A group is G rows
    ``<uid>_g<i>`` with the same uid and the same ``i // G``; rows whose ids don't end in ``_g<i>``
    are grouped by G in the order in which they came.

    Args:
        cfg: A ``data_plane`` block of ``impl: transfer_queue``.
        bootstrap: Start a plane, or attach to the one that runs in this process's Ray cluster.

    Raises:
        ConfigError: The block can't be used, or a package or library is not installed.
        PlaneUnavailable: The plane did not start, or there is none to attach to.
    """

    def __init__(self, cfg: DataPlaneConfig | Mapping[str, Any], bootstrap: bool = True) -> None:
        config = cfg if isinstance(cfg, DataPlaneConfig) else parse_data_plane(cfg)
        if not isinstance(config, TransferQueueConfig):
            raise ConfigError(f"data_plane.impl is {config.impl!r}: this is transfer_queue")
        self._owner = arguments.flag("bootstrap", bootstrap)
        runtime = _runtime()
        self._poll_s = config.claim_meta_poll_interval_s
        self._session = runtime.start(config) if bootstrap else runtime.attach()
        store = importlib.import_module("rlconform.backends.transfer_queue.store")
        self._store = store.Store(self._session)

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
        self._session.check_open()
        self._store.register(partition_id, tasks, group_size)

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Write columns, tags, or both, visible as a whole once it returns.

        Rows of a field share one dtype: a put may change it only by replacing all of them.

        Raises:
            ValueError: A malformed argument, a batch size or a number of tags other than N, or a
                dtype other than that of rows which stay.
            TypeError: A leaf that is no dense tensor, jagged tensor or object column of plain data.
            CapacityExceeded: The plane has no room for the rows.
            PlaneUnavailable: A process of the plane is gone or does not answer.
        """
        sample_ids = _encodable(arguments.texts("sample_ids", sample_ids, unique=True))
        arguments.text("partition_id", partition_id)
        columns = _split(fields, len(sample_ids))
        tag_rows = arguments.tag_rows(tags, len(sample_ids))
        if fields is None and tag_rows is None:
            raise ValueError("put_samples needs fields or tags")
        self._session.check_open()
        if sample_ids and columns:
            self._store.write(partition_id, sample_ids, columns, tag_rows)
        elif sample_ids:
            self._store.stamp(partition_id, sample_ids, tag_rows or [{} for _ in sample_ids])
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
            ForeignRow: The store has lost the row's bytes to another writer.
            PlaneUnavailable: A process of the plane is gone or does not answer.
        """
        sample_ids = arguments.texts("sample_ids", sample_ids)
        arguments.text("partition_id", partition_id)
        names = arguments.texts("select_fields", select_fields, least=1)
        self._session.check_open()
        columns = {}
        if sample_ids:
            columns = self._store.read(partition_id, sample_ids, list(dict.fromkeys(names)))
        return TensorDict(columns, batch_size=[len(sample_ids)])

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

        A blocking claim gives exactly ``batch_size`` rows, another one 0 to ``batch_size``. It asks
        the controller again every ``claim_meta_poll_interval_s``, and each time for all or nothing.

        Raises:
            TimeoutError: ``timeout_s`` seconds went by; nothing is claimed.
            LookupError: An unknown partition or task.
            ValueError: A malformed argument, or a blocking claim that whole groups can't fill.
            PlaneUnavailable: A process of the plane is gone or does not answer.
        """
        arguments.text("partition_id", partition_id)
        arguments.text("task_name", task_name)
        names = arguments.texts("required_fields", required_fields, least=1)
        batch_size = arguments.whole("batch_size", batch_size, least=1)
        if dp_rank is not None:
            arguments.whole("dp_rank", dp_rank, least=0)
        arguments.flag("blocking", blocking)
        deadline = time.monotonic() + arguments.seconds("timeout_s", timeout_s)
        while True:
            self._session.check_open()
            sample_ids, tags = self._store.claim(
                partition_id, task_name, names, batch_size, exact=blocking
            )
            if sample_ids or not blocking:
                return KVBatchMeta(
                    partition_id,
                    task_name,
                    sample_ids,
                    fields=names,
                    sequence_lengths=_lengths(tags),
                    tags=tags,
                )
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(
                    f"{partition_id!r} has no {batch_size} rows with {names} for {task_name!r}"
                )
            time.sleep(min(self._poll_s, remaining))

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
        self._session.check_open()
        return bool(self._store.all_claimed(partition_id, names))

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Drop rows with tags and cursors; with None those that this process was first to put."""
        if sample_ids is not None:
            sample_ids = arguments.texts("sample_ids", sample_ids)
        arguments.text("partition_id", partition_id)
        self._session.check_open()
        if sample_ids != []:
            self._store.clear(partition_id, sample_ids)

    def close(self) -> None:
        """Let go of the plane. The owner's close ends it, with everything that it started."""
        self._session.close()

    def control(self) -> PlaneControl:
        """Power over the processes of the plane. ``ValueError`` unless this client owns it."""
        if not self._owner:
            raise ValueError("an attached client has no power over the plane's processes")
        session: PlaneControl = self._session
        return session


def _runtime() -> Any:
    """The part of the adapter that imports Ray and TransferQueue.

    Raises:
        ConfigError: One of them is not installed.
    """
    try:
        return importlib.import_module("rlconform.backends.transfer_queue.runtime")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'the Python package {error.name} is not installed: pip install "rlconform[tq]"'
        ) from error


def _split(fields: TensorDictBase | None, n_rows: int) -> dict[str, Rows]:
    """A put's columns as rows; none where no fields were given."""
    from rlconform.backends.transfer_queue.frames import split_column  # noqa: PLC0415

    if fields is None:
        return {}
    if not isinstance(fields, TensorDictBase):
        raise TypeError(f"fields must be a TensorDict, got {type(fields).__name__}")
    if tuple(fields.batch_size) != (n_rows,):
        raise ValueError(
            f"fields has batch size {tuple(fields.batch_size)} for {n_rows} sample_ids"
        )
    return {name: split_column(name, fields.get(name), n_rows) for name in map(str, fields.keys())}


def _encodable(sample_ids: list[str]) -> list[str]:
    for sample_id in sample_ids:
        sample_id.encode()  # a lone surrogate is no text: UnicodeEncodeError is a ValueError
    return sample_ids


def _lengths(tags: list[Tags]) -> list[int] | None:
    """The rows' ``input_lengths`` tags; None unless every row carries an integer."""
    lengths = [row.get(INPUT_LENGTHS) for row in tags]
    integers = [
        int(n) for n in lengths if isinstance(n, int | np.integer) and not isinstance(n, bool)
    ]
    return integers if len(integers) == len(tags) else None

"""``TransferQueueEngine``: what a client asks for, in terms of the store."""

from __future__ import annotations

import time

from tensordict import TensorDict, TensorDictBase

from rlconform.backends.checkpoint_state import SavedPartition
from rlconform.backends.transfer_queue.connection import TransferQueueConnection
from rlconform.backends.transfer_queue.frame_format import split_column
from rlconform.backends.transfer_queue.store import Store
from rlconform.contract import Tags


class TransferQueueEngine:
    """The plane behind a session; a claim that waits looks every ``poll_s`` seconds.

    The controller has ``answer_s`` seconds to answer a request, None for the adapter's own limit.
    """

    def __init__(
        self, connection: TransferQueueConnection, poll_s: float, answer_s: float | None = None
    ) -> None:
        self._connection = connection
        self._store = Store(connection, answer_s)
        self._poll_s = poll_s

    def check_open(self) -> None:
        self._connection.check_open()

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        self._store.register(partition_id, tasks, group_size)

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        for sample_id in sample_ids:
            sample_id.encode()  # a lone surrogate is no text: UnicodeEncodeError is a ValueError
        n_rows = len(sample_ids)
        columns = {}
        if fields is not None:
            for name in map(str, fields.keys()):
                columns[name] = split_column(name, fields.get(name), n_rows)
        if columns:
            self._store.write(partition_id, sample_ids, columns, tags)
        else:
            self._store.stamp(partition_id, sample_ids, tags or [{} for _ in sample_ids])

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        columns = self._store.read(partition_id, sample_ids, names)
        return TensorDict(columns, batch_size=[len(sample_ids)])

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]]:
        deadline = time.monotonic() + (wait_s or 0.0)
        while True:
            self._connection.check_open()
            claimed = self._store.claim(partition_id, task, names, rows, exact=wait_s is not None)
            if claimed[0] or wait_s is None:
                return claimed
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"{partition_id!r} has no {rows} rows with {names} for {task!r}")
            time.sleep(min(self._poll_s, remaining))

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        return bool(self._store.all_claimed(partition_id, tasks))

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        self._store.clear(partition_id, sample_ids)

    def sample_ids(self, partition_id: str) -> list[str]:
        return self._store.sample_ids(partition_id)

    def snapshot(self) -> list[SavedPartition]:
        return self._store.snapshot()

    def restore(self, partition: SavedPartition) -> None:
        self._store.restore(partition)

    def close(self) -> None:
        self._connection.close()

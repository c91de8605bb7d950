"""``TransferQueueEngine``: the engine of a TransferQueue, in one client process.

Registrations, claims and checkpoints are calls on the row table in the controller; ``Store``
writes, reads and clears values.
"""

from __future__ import annotations

import time
from contextlib import suppress

from tensordict import TensorDict, TensorDictBase

from rlconform.backends.checkpoint_state import SavedPartition, SavedRow
from rlconform.backends.columns.encode import batch_of, pack
from rlconform.backends.transfer_queue.connection import TransferQueueConnection
from rlconform.backends.transfer_queue.controller_calls import ControllerCalls
from rlconform.backends.transfer_queue.store import Store
from rlconform.contract import Tags, UnknownPartition


class TransferQueueEngine:
    """The engine of one client; a blocking claim polls every ``poll_s`` seconds.

    The controller has ``answer_s`` seconds to answer a request.
    """

    def __init__(self, connection: TransferQueueConnection, poll_s: float, answer_s: float) -> None:
        self._connection = connection
        self._calls = ControllerCalls(connection, answer_s)
        self._store = Store(connection, self._calls)
        self._poll_s = poll_s

    def check_open(self) -> None:
        self._connection.check_open()

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        self._calls.create_partition(partition_id)
        self._calls.call(partition_id, "register", tasks=tasks, group_size=group_size)

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        for sample_id in sample_ids:
            sample_id.encode()  # a lone surrogate is no text: UnicodeEncodeError is a ValueError
        columns = pack(fields, len(sample_ids))
        if columns:
            self._store.write(partition_id, sample_ids, columns, tags)
        else:
            self._store.stamp(partition_id, sample_ids, tags or [{} for _ in sample_ids])

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        return batch_of(self._store.read(partition_id, sample_ids, names), len(sample_ids))

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]]:
        deadline = time.monotonic() + (wait_s or 0.0)
        while True:
            self._connection.check_open()
            sample_ids, tags = self._calls.call(
                partition_id,
                "claim",
                cursor=task,
                ready=names,
                task=task,
                names=names,
                batch_size=rows,
                exact=wait_s is not None,
            )
            if sample_ids or wait_s is None:
                return sample_ids, tags
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"{partition_id!r} has no {rows} rows with {names} for {task!r}")
            time.sleep(min(self._poll_s, remaining))

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        with suppress(UnknownPartition):
            return bool(self._calls.call(partition_id, "status", tasks=tasks))
        return False

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        self._store.clear(partition_id, sample_ids)

    def sample_ids(self, partition_id: str) -> list[str]:
        with suppress(UnknownPartition):
            return list(self._calls.call(partition_id, "sample_ids"))
        return []

    def snapshot(self) -> list[SavedPartition]:
        partitions = self._calls.run(self._connection.client.async_get_partition_list())
        saved = []
        for partition_id in partitions:
            state = self._calls.call(partition_id, "snapshot")
            if state is not None:
                rows = [SavedRow(*row) for row in state.pop("rows")]
                saved.append(SavedPartition(partition_id=partition_id, rows=rows, **state))
        return saved

    def restore(self, partition: SavedPartition) -> None:
        claims: dict[str, list[str]] = {}
        for row in partition.rows:
            for task in row.claimed_by:
                claims.setdefault(task, []).append(row.sample_id)
        for task, sample_ids in claims.items():
            self._calls.call(partition.partition_id, "mark", cursor=task, sample_ids=sample_ids)
        self._calls.call(
            partition.partition_id,
            "restore",
            ever_produced=partition.ever_produced,
            next_ungrouped=partition.next_ungrouped,
            groups={row.sample_id: row.group for row in partition.rows},
        )

    def close(self) -> None:
        self._connection.close()

"""``Store``: frames in and out of a running TransferQueue, under the table's rules.

    write   look up the keys, pin ──▶ put the frames ──▶ commit          (else abort)
    read    locate ──▶ get the frames ──▶ each must be the one located   (else locate again)
    clear   drop ──▶ clear the frames, give the indexes back

The package's own put is not used: it makes rows claimable first and sends their tags after, and it
reports success though the controller never heard of the data.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transfer_queue import BatchMeta

from rlconform.backends.checkpoint_state import SavedPartition, SavedRow
from rlconform.backends.process_id import process_id
from rlconform.backends.transfer_queue.connection import TransferQueueConnection
from rlconform.backends.transfer_queue.controller_calls import PACKAGE_ERRORS, ControllerCalls
from rlconform.backends.transfer_queue.frame_format import FrameRows, decode_column, encode_column
from rlconform.backends.transfer_queue.storage_batches import (
    NO_FIELD,
    batch_meta,
    batch_of,
    frames_of,
)
from rlconform.contract import (
    CapacityExceeded,
    DataPlaneError,
    ForeignRow,
    PlaneUnavailable,
    Tags,
    UnknownPartition,
)

#: The package's words for a store that is full: SimpleStorage's, and Mooncake's code.
_FULL = ("capacity exceeded", "error codes [-200")

#: Bytes of rows travel within the first, and within the time that they take at the slowest speed.
_DATA_S = 60.0
_SLOWEST_BYTES_PER_S = 16 * 2**20
#: After this, and the time for its bytes, a put may be pushed aside by another one to its rows.
_LEASE_S = 10.0
#: Fresh looks that a read takes at rows which nobody is writing to.
_LOOKS = 5
_LONGEST_PAUSE_S = 0.02


class Store:
    """The plane's operations on one session; arguments were checked before."""

    def __init__(self, connection: TransferQueueConnection, answer_s: float | None = None) -> None:
        self._connection = connection
        self._calls = ControllerCalls(connection, answer_s)

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        """Declare a partition's consumer tasks and the size of its groups."""
        self._calls.create_partition(partition_id)
        self._calls.call(partition_id, "register", tasks=tasks, group_size=group_size)

    def write(
        self,
        partition_id: str,
        sample_ids: list[str],
        columns: Mapping[str, FrameRows],
        tags: list[Tags] | None,
    ) -> None:
        """Write columns and tags as a whole; nothing remains of a write that fails.

        Raises:
            ValueError: Other rows hold a field in another dtype.
            CapacityExceeded: The store is full.
            PlaneUnavailable: A process of the plane is gone or does not answer.
        """
        token = secrets.randbits(63)
        frames = {
            name: encode_column(partition_id, name, token, sample_ids, rows)
            for name, rows in columns.items()
        }
        sizes = {name: column.sizes for name, column in frames.items()}
        kinds = {name: column.kind for name, column in frames.items()}
        seconds = _transfer_s(sizes.values())
        meta = self._reserve(partition_id, sample_ids, token, kinds, _LEASE_S + seconds)
        written = False
        try:
            self._put(meta, batch_of(frames, len(sample_ids)), _DATA_S + seconds)
            freed = self._calls.call(
                partition_id,
                "commit",
                token=token,
                sizes=sizes,
                tags=tags,
                owner=process_id(),
            )
            written = True
        finally:
            if not written:
                self._give_up(partition_id, sample_ids, meta.global_indexes, token, list(kinds))
        self._release(partition_id, freed)

    def stamp(self, partition_id: str, sample_ids: list[str], tags: list[Tags]) -> None:
        """Merge tags into rows; a row that has nothing else is known to the table alone."""
        arguments: dict[str, Any] = {"sample_ids": sample_ids, "tags": tags}
        try:
            self._calls.call(partition_id, "stamp", owner=process_id(), **arguments)
        except UnknownPartition:
            self._calls.create_partition(partition_id)
            self._calls.call(partition_id, "stamp", owner=process_id(), **arguments)

    def read(self, partition_id: str, sample_ids: list[str], names: list[str]) -> dict[str, Any]:
        """Columns of the rows, a repeated id repeatedly.

        Raises:
            LookupError: A partition, row or field that isn't there.
            ForeignRow: The store has lost a row's bytes to another writer.
            ValueError: Rows that no one column can hold.
        """
        # For a repeated index the key-value engine returns other rows' bytes: ask once for each.
        unique = list(dict.fromkeys(sample_ids))
        looks = 0
        while True:
            located = self._calls.call(partition_id, "locate", sample_ids=unique, names=names)
            indexes, cells, busy = located
            try:
                return self._fetch(partition_id, sample_ids, unique, indexes, cells)
            except (PlaneUnavailable, UnknownPartition):
                raise
            except DataPlaneError:
                # The rows were cleared, or are being overwritten, since they were located.
                looks = 0 if busy else looks + 1
                if looks >= _LOOKS:
                    raise
                time.sleep(min(0.001 * 2**looks, _LONGEST_PAUSE_S))

    def claim(
        self, partition_id: str, task: str, names: list[str], batch_size: int, *, exact: bool
    ) -> tuple[list[str], list[Tags]]:
        """Hand rows to the task, up to ``batch_size``, or all or none if ``exact``."""
        sample_ids, tags = self._calls.call(
            partition_id,
            "claim",
            cursor=task,
            ready=names,
            task=task,
            names=names,
            batch_size=batch_size,
            exact=exact,
        )
        return sample_ids, tags

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether rows were produced and each of them was claimed by every task."""
        try:
            return bool(self._calls.call(partition_id, "status", tasks=tasks))
        except UnknownPartition:
            return False

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows; ``None`` for all that this process made. No error for what isn't there."""
        try:
            freed = self._calls.call(
                partition_id, "drop", sample_ids=sample_ids, owner=process_id()
            )
        except UnknownPartition:
            return
        self._release(partition_id, freed)

    def sample_ids(self, partition_id: str) -> list[str]:
        """The ids of a partition's rows; none where there is no partition."""
        try:
            return list(self._calls.call(partition_id, "sample_ids"))
        except UnknownPartition:
            return []

    def snapshot(self) -> list[SavedPartition]:
        """What a checkpoint must hold beside the values."""
        partitions = self._calls.run(self._connection.client.async_get_partition_list())
        saved = []
        for partition_id in partitions:
            state = self._calls.call(partition_id, "snapshot")
            if state is not None:
                rows = [SavedRow(*row) for row in state.pop("rows")]
                saved.append(SavedPartition(partition_id=partition_id, rows=rows, **state))
        return saved

    def restore(self, partition: SavedPartition) -> None:
        """Give a partition, whose rows were put again, its groups and cursors."""
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

    def _reserve(
        self,
        partition_id: str,
        sample_ids: list[str],
        token: int,
        kinds: dict[str, str],
        lease_s: float,
    ) -> BatchMeta:
        """The rows' indexes, pinned for this put; waits for a put that holds one of them."""
        client = self._connection.client
        end = time.monotonic() + _DATA_S
        pause = 0.001
        while True:
            meta = self._calls.run(
                client.async_kv_retrieve_meta(sample_ids, partition_id, create=True)
            )
            reserved = False
            try:
                reserved = self._calls.call(
                    partition_id,
                    "reserve",
                    token=token,
                    sample_ids=sample_ids,
                    indexes=meta.global_indexes,
                    kinds=kinds,
                    lease_s=lease_s,
                )
            finally:
                if not reserved:
                    self._give_up(partition_id, sample_ids, meta.global_indexes, token, [])
            if reserved:
                return meta
            if time.monotonic() > end:
                raise PlaneUnavailable(f"other puts held these rows for {_DATA_S:g} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _put(self, meta: BatchMeta, batch: Any, seconds: float) -> None:
        try:
            self._calls.run(self._connection.client.storage_manager.put_data(batch, meta), seconds)
        except PlaneUnavailable:
            raise
        except DataPlaneError as error:
            if any(word in str(error).lower() for word in _FULL):
                raise CapacityExceeded(f"the store is full: {error}") from error
            raise

    def _fetch(
        self,
        partition_id: str,
        sample_ids: list[str],
        unique: list[str],
        indexes: list[int],
        cells: Mapping[str, Sequence[list[int]]],
    ) -> dict[str, Any]:
        sizes = {name: column[1] for name, column in cells.items()}
        meta = batch_meta(partition_id, indexes, sizes)
        seconds = _DATA_S + _transfer_s(sizes.values())
        batch = self._calls.run(self._connection.client.storage_manager.get_data(meta), seconds)
        position = {sample_id: row for row, sample_id in enumerate(unique)}
        rows = [position[sample_id] for sample_id in sample_ids]
        columns = {}
        for name, (tokens, _) in cells.items():
            frames = frames_of(batch, name)
            if len(frames) != len(unique):
                raise ForeignRow(f"the store returned {len(frames)} rows for {len(unique)}")
            columns[name] = decode_column(
                partition_id,
                name,
                [tokens[row] for row in rows],
                sample_ids,
                [frames[row] for row in rows],
            )
        return columns

    def _give_up(
        self,
        partition_id: str,
        sample_ids: list[str],
        indexes: list[int],
        token: int,
        names: list[str],
    ) -> None:
        """Take back a put that failed. What failed it may fail this too; it is being raised."""
        try:
            freed = self._calls.call(
                partition_id,
                "abort",
                token=token,
                sample_ids=sample_ids,
                indexes=indexes,
                names=names,
            )
            self._release(partition_id, freed)
        except (DataPlaneError, *PACKAGE_ERRORS):
            return

    def _release(self, partition_id: str, freed: list[list[Any]]) -> None:
        """Clear what is stored at these indexes, then give them back."""
        if not freed:
            return
        indexes = [index for index, _ in freed]
        # All names for all rows: the key-value engine clears the fields that it is told, no others.
        names = sorted({name for _, fields in freed for name in fields}) or [NO_FIELD]
        meta = batch_meta(partition_id, indexes, {name: [0] * len(indexes) for name in names})
        self._calls.run(self._connection.client.async_clear_samples(meta), _DATA_S)
        self._connection.check_alive()  # a clear in a dead storage unit reports success


def _transfer_s(sizes: Iterable[Sequence[int]]) -> float:
    """Seconds that frames of these sizes take at the slowest speed."""
    return sum(map(sum, sizes)) / _SLOWEST_BYTES_PER_S

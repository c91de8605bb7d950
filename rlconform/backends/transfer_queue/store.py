"""``Store``: writes, reads and clears frames in a running TransferQueue, guarded by the row table.

    write   get the indexes, reserve them ──▶ put the frames ──▶ commit          (else abort)
    read    locate ──▶ get the frames ──▶ compare with the located ones          (else locate again)
    clear   drop ──▶ clear the frames and release the indexes

The package's own put is not used: it makes rows claimable before it sends their tags, and it
reports success even if the controller was never notified of the data.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from transfer_queue import BatchMeta

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.process_id import process_id
from rlconform.backends.transfer_queue.connection import NoAnswer, TransferQueueConnection
from rlconform.backends.transfer_queue.controller_calls import PACKAGE_ERRORS, ControllerCalls
from rlconform.backends.transfer_queue.frame_format import decode_column, encode_column
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

Result = TypeVar("Result")

#: Error texts of a full store: SimpleStorage's, and Mooncake's code.
_FULL = ("capacity exceeded", "error codes [-200")

#: Seconds of the first and of the second try of a transfer, beside the time for its bytes at the
#: slowest speed. Together they are less than the 30 s that a target allows for an operation.
_TRIES_S = (8.0, 14.0)
#: Seconds that a put waits for other puts of its rows.
_WAIT_S = 20.0
_SLOWEST_BYTES_PER_S = 16 * 2**20
#: Seconds of a put's lease beside the time for its bytes; then another put may write its rows.
_LEASE_S = 10.0
#: Number of times that a read locates rows again to which no put is writing.
_MAX_RETRIES = 5
_LONGEST_PAUSE_S = 0.02


class Store:
    """Writes, reads and clears over one connection; the arguments are already checked."""

    def __init__(self, connection: TransferQueueConnection, calls: ControllerCalls) -> None:
        self._connection = connection
        self._calls = calls

    def write(
        self,
        partition_id: str,
        sample_ids: list[str],
        columns: ColumnBlock,
        tags: list[Tags] | None,
    ) -> None:
        """Write columns and tags as a whole; a failed write leaves nothing behind."""
        token = secrets.randbits(63)
        frames = {
            name: encode_column(partition_id, name, token, sample_ids, column)
            for name, column in columns.items()
        }
        sizes = {name: column.sizes for name, column in frames.items()}
        kinds = {name: column.dtype for name, column in columns.items()}
        seconds = _transfer_s(sizes.values())
        meta = self._reserve(partition_id, sample_ids, token, kinds, _LEASE_S + seconds)
        with ExitStack() as undo:
            undo.callback(
                self._abort, partition_id, sample_ids, meta.global_indexes, token, list(kinds)
            )
            self._put(meta, batch_of(frames, len(sample_ids)), seconds)
            freed = self._calls.call(
                partition_id, "commit", token=token, sizes=sizes, tags=tags, owner=process_id()
            )
            undo.pop_all()
        self._release(partition_id, freed)

    def stamp(self, partition_id: str, sample_ids: list[str], tags: list[Tags]) -> None:
        """Merge tags into rows; a row without fields exists in the row table only."""
        arguments: dict[str, Any] = {"sample_ids": sample_ids, "tags": tags}
        try:
            self._calls.call(partition_id, "stamp", owner=process_id(), **arguments)
        except UnknownPartition:
            self._calls.create_partition(partition_id)
            self._calls.call(partition_id, "stamp", owner=process_id(), **arguments)

    def read(self, partition_id: str, sample_ids: list[str], names: list[str]) -> ColumnBlock:
        """Read columns of rows; ``ForeignRow`` if another writer has overwritten a row's bytes."""
        # For a repeated index the key-value engine returns other rows' bytes: get each once.
        unique = list(dict.fromkeys(sample_ids))
        retries = 0
        while True:
            located = self._calls.call(partition_id, "locate", sample_ids=unique, names=names)
            indexes, cells, busy = located
            try:
                return self._fetch(partition_id, sample_ids, unique, indexes, cells)
            except (PlaneUnavailable, UnknownPartition):
                raise
            except DataPlaneError:
                # The rows were cleared or overwritten since they were located.
                retries = 0 if busy else retries + 1
                if retries >= _MAX_RETRIES:
                    raise
                time.sleep(min(0.001 * 2**retries, _LONGEST_PAUSE_S))

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Delete rows; ``None`` deletes all that this process put. Unknown ids are ignored."""
        try:
            freed = self._calls.call(
                partition_id, "drop", sample_ids=sample_ids, owner=process_id()
            )
        except UnknownPartition:
            return
        self._release(partition_id, freed)

    def _reserve(
        self,
        partition_id: str,
        sample_ids: list[str],
        token: int,
        kinds: dict[str, str],
        lease_s: float,
    ) -> BatchMeta:
        """Reserve the rows for this put; wait while another put is writing one of them."""
        client = self._connection.client
        end = time.monotonic() + _WAIT_S
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
                    self._abort(partition_id, sample_ids, meta.global_indexes, token, [])
            if reserved:
                return meta
            if time.monotonic() > end:
                raise PlaneUnavailable(f"other puts were writing these rows for {_WAIT_S:g} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _put(self, meta: BatchMeta, batch: Any, seconds: float) -> None:
        try:
            self._transfer(lambda storage: storage.put_data(batch, meta), seconds)
        except PlaneUnavailable:
            raise
        except DataPlaneError as error:
            if any(word in str(error).lower() for word in _FULL):
                raise CapacityExceeded(f"the store is full: {error}") from error
            raise

    def _transfer(
        self, start: Callable[[Any], Coroutine[Any, Any, Result]], seconds: float
    ) -> Result:
        """Make a call of the storage manager, whose bytes may take ``seconds``; try twice.

        A reset connection loses the request or its answer, and the package waits for it. The
        second try is made on another connection, and has the same effect as the first.
        """
        first, second = _TRIES_S
        storage = self._connection.client.storage_manager
        try:
            return self._calls.run(start(storage), first + seconds)
        except NoAnswer:
            return self._calls.run(start(storage), second + seconds)

    def _fetch(
        self,
        partition_id: str,
        sample_ids: list[str],
        unique: list[str],
        indexes: list[int],
        cells: Mapping[str, Sequence[list[int]]],
    ) -> ColumnBlock:
        sizes = {name: column[1] for name, column in cells.items()}
        meta = batch_meta(partition_id, indexes, sizes)
        seconds = _transfer_s(sizes.values())
        batch = self._transfer(lambda storage: storage.get_data(meta), seconds)
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

    def _abort(
        self,
        partition_id: str,
        sample_ids: list[str],
        indexes: list[int],
        token: int,
        names: list[str],
    ) -> None:
        """Undo a failed put; ignores errors, because the put's own error is being raised."""
        rows: dict[str, Any] = {"sample_ids": sample_ids, "indexes": indexes, "names": names}
        with suppress(DataPlaneError, *PACKAGE_ERRORS):
            self._release(
                partition_id, self._calls.call(partition_id, "abort", token=token, **rows)
            )

    def _release(self, partition_id: str, freed: list[list[Any]]) -> None:
        """Clear the frames at these indexes, then release the indexes."""
        if not freed:
            return
        indexes = [index for index, _ in freed]
        # All names for all rows: the key-value engine clears only the fields that are named.
        names = sorted({name for _, fields in freed for name in fields}) or [NO_FIELD]
        meta = batch_meta(partition_id, indexes, {name: [0] * len(indexes) for name in names})
        client = self._connection.client
        self._transfer(lambda _: client.async_clear_samples(meta), 0.0)
        self._connection.check_alive()  # a clear in a dead storage unit reports success


def _transfer_s(sizes: Iterable[Sequence[int]]) -> float:
    """Return the seconds to transfer frames of these sizes at the slowest speed."""
    return sum(map(sum, sizes)) / _SLOWEST_BYTES_PER_S

"""``RowTableSampler``: runs the row tables inside TransferQueue's controller.

TransferQueue's controller takes a user's sampler and passes it each "fetch" request with a
``sampling_config`` of the user. This is the only way to run an adapter's code on the controller's
request thread, so every atomic call of the adapter uses it:

    client ── fetch, sampling_config={"call": bytes} ──▶ controller ──▶ RowTableSampler.sample
    client ◀── batch meta of one row, -1, whose custom meta is the reply ──────────┘

Claims use the controller's ready rows and cursors. TransferQueue's own samplers have problems:
they return nothing below a full batch, so the last rows are never returned; they order by an index
that is reused; ids need a second request, and are ``None`` after a clear in between; tags need a
second request, so claims see rows without them; any task name has a cursor; unknown ids are dropped
silently.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from transfer_queue import BaseSampler

from rlconform.backends.columns import codec
from rlconform.backends.transfer_queue.row_table import RowTable
from rlconform.backends.transfer_queue.storage_batches import stored_name
from rlconform.contract import CapacityExceeded, DataPlaneError, PlaneUnavailable

#: Index of the row with the reply; TransferQueue's own indexes start at 0.
MAILBOX = -1
REPLY = "reply"


class RowTableSampler(BaseSampler):  # type: ignore[misc]
    """Holds the row tables by partition, and runs the calls that clients make on them.

    ``capacity`` limits the rows of the plane. The store's own limit is not used: it counts per
    storage unit, and reused indexes fill the units unevenly, so a unit refuses rows long before the
    plane is full, after other units have stored theirs.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._most = 0  # rows that the plane may hold: those last counted, and those put since
        self._tables: dict[str, RowTable] = {}

    def sample(
        self, ready_indexes: list[int], batch_size: int, *_: Any, **kwargs: Any
    ) -> tuple[list[int], list[int]]:
        """Run one client's call on a row table; return no row for an unknown partition."""
        del batch_size  # a claim's batch size is in its call
        partition = kwargs["partition"]
        if partition is None:
            return [], []
        table = self._tables.setdefault(partition.partition_id, RowTable(time.monotonic))
        name, arguments = codec.unpack(kwargs["call"])
        consumed: list[int] = []
        try:
            if name == "claim":
                rows = table.select(ready=ready_indexes, **arguments)
                consumed = [row.index for row in rows]
                reply: Any = ["ok", [[row.sample_id for row in rows], [row.tags for row in rows]]]
            elif name == "mark":
                consumed = table.indexes_of(**arguments)
                reply = ["ok", None]
            else:
                if name == "reserve":
                    self._check_room(table.count_new(arguments["indexes"]))
                if name in _CALLS:
                    value = _CALLS[name](table, partition, **arguments)
                else:
                    value = getattr(table, name)(**arguments)
                reply = ["ok", value]
        except (DataPlaneError, ValueError) as refused:
            reply = [type(refused).__name__, str(refused)]
        partition.custom_meta[MAILBOX] = {REPLY: codec.pack(reply)}
        return [MAILBOX], consumed

    def _check_room(self, new_rows: int) -> None:
        if self._most + new_rows > self._capacity:  # counting takes long with many partitions
            held = self._most = sum(table.occupied for table in self._tables.values())
            if held + new_rows > self._capacity:
                raise CapacityExceeded(
                    f"{new_rows} new rows beside {held}: the plane holds {self._capacity} at most "
                    "(data_plane.storage_capacity)"
                )
        self._most += new_rows

    def clear_cache(self, partition_id: str) -> None:
        """Delete a partition's table; the controller calls this when it deletes the partition."""
        super().clear_cache(partition_id)
        self._tables.pop(partition_id, None)


def _reserve(table: RowTable, partition: Any, **arguments: Any) -> bool:
    keys = partition.revert_keys_mapping
    named = zip(arguments["indexes"], arguments["sample_ids"], strict=True)
    # A clear since the indexes were retrieved may have removed one of them.
    return all(keys.get(index) == name for index, name in named) and table.reserve(**arguments)


def _commit(table: RowTable, partition: Any, *, token: int, **arguments: Any) -> Any:
    fields = [stored_name(name) for name in arguments["sizes"]]
    # The store's put succeeds even if notifying the controller failed.
    if not _all_ready(partition, table.reserved_indexes(token), fields):
        raise PlaneUnavailable("TransferQueue's controller was never notified of the data")
    return table.commit(token, **arguments)


def _all_ready(partition: Any, indexes: list[int], fields: list[str]) -> bool:
    columns = partition.field_name_mapping
    if not all(name in columns for name in fields):
        return False
    bits = partition.production_status[indexes][:, [columns[name] for name in fields]]
    return bool((bits == 1).all())


def _abort(
    table: RowTable, partition: Any, *, sample_ids: list[str], indexes: list[int], **rest: Any
) -> Any:
    keys = partition.revert_keys_mapping
    named = zip(sample_ids, indexes, strict=True)
    own = [(name, index) for name, index in named if keys.get(index) == name]
    freed, vacant = table.abort(
        sample_ids=[name for name, _ in own], indexes=[index for _, index in own], **rest
    )
    _forget_keys(partition, vacant)
    return freed


def _drop(table: RowTable, partition: Any, **arguments: Any) -> Any:
    freed, gone = table.drop(**arguments)
    _forget_keys(partition, gone)
    return freed


def _forget_keys(partition: Any, sample_ids: list[str]) -> None:
    """Forget the ids' indexes, which a later clear releases, so that the ids get new indexes."""
    for sample_id in sample_ids:
        index = partition.keys_mapping.pop(sample_id, None)
        partition.revert_keys_mapping.pop(index, None)


def _status(table: RowTable, partition: Any, *, tasks: list[str]) -> bool:
    if not (table.ever_produced and table.tasks.issuperset(tasks)):
        return False
    produced = table.indexes
    return all(bool((_cursor(partition, task)[produced] == 1).all()) for task in tasks)


def _snapshot(table: RowTable, partition: Any) -> dict[str, Any] | None:
    cursors = {task: _cursor(partition, task) for task in table.tasks}
    return table.snapshot(
        lambda task, index: 0 <= index < len(cursors[task]) and int(cursors[task][index]) == 1
    )


def _cursor(partition: Any, task: str) -> Any:
    """Return an array by index, 1 where the task has claimed the row."""
    return partition.get_consumption_status(task, mask=False)[1]


#: Calls that also use TransferQueue's own records; all others are methods of the table.
_CALLS: dict[str, Callable[..., Any]] = {
    "reserve": _reserve,
    "commit": _commit,
    "abort": _abort,
    "drop": _drop,
    "status": _status,
    "snapshot": _snapshot,
}

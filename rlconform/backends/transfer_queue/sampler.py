"""``RowTableSampler``: the ledger's seat in the controller.

TransferQueue hands a sampler of the user's own to its controller and passes it each "fetch" request
with a ``sampling_config`` that is the user's to fill. That is the one place where code of an
adapter runs on the controller's request thread, so every call of the adapter that must be atomic
goes this way:

    client ── fetch, sampling_config={"call": bytes} ──▶ controller ──▶ LedgerSampler.sample
    client ◀── batch meta of one row, -1, whose custom meta is the reply ──────────┘

Claims use the ready rows and the cursors of the controller. It repairs what its own samplers do:
nothing below a full batch, so that a tail starves; order by an index that is reused; ids in a
second request, where a clear in between leaves ``None``; tags in a second request, where claims see
rows without them; cursors for any task name; reads that silently drop unknown ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from transfer_queue import BaseSampler

from rlconform.backends.columns import codec
from rlconform.backends.transfer_queue.row_state import Conflict, Unready
from rlconform.backends.transfer_queue.row_table import RowTable
from rlconform.backends.transfer_queue.storage_batches import stored_name
from rlconform.backends.transfer_queue.write_leases import LeaseExpired

#: Row of the reply; TransferQueue's own indexes start at 0.
MAILBOX = -1
REPLY = "reply"


class RowTableSampler(BaseSampler):  # type: ignore[misc]
    """Ledgers by partition, and the calls that clients may make on them.

    Args:
        capacity: Rows that the plane holds at most. The store's own limit is not used: it counts
            for each storage unit, to which a reused index leads, so that a plane refuses rows long
            before it is full, and does so after other units stored theirs.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._ledgers: dict[str, RowTable] = {}

    def sample(
        self, ready_indexes: list[int], batch_size: int, *_: Any, **kwargs: Any
    ) -> tuple[list[int], list[int]]:
        """Serve one call; no row at all for a partition that doesn't exist."""
        del batch_size  # a claim's own is in its call
        partition = kwargs["partition"]
        if partition is None:
            return [], []
        ledger = self._ledgers.setdefault(partition.partition_id, RowTable(time.monotonic))
        name, arguments = codec.unpack(kwargs["call"])
        consumed: list[int] = []
        try:
            if name == "claim":
                rows = ledger.select(ready=ready_indexes, **arguments)
                consumed = [row.index for row in rows]
                reply: Any = ["ok", [[row.sample_id for row in rows], [row.tags for row in rows]]]
            elif name == "mark":
                consumed = ledger.indexes_of(**arguments)
                reply = ["ok", None]
            else:
                if name == "pin":
                    self._check_room(ledger.count_new(arguments["indexes"]))
                reply = ["ok", _CALLS[name](ledger, partition, **arguments)]
        except (Conflict, LeaseExpired, Unready) as refused:
            reply = [type(refused).__name__, list(refused.args)]
        partition.custom_meta[MAILBOX] = {REPLY: codec.pack(reply)}
        return [MAILBOX], consumed

    def _check_room(self, new_rows: int) -> None:
        held = sum(ledger.occupied for ledger in self._ledgers.values())
        if held + new_rows > self._capacity:
            raise Unready("room", f"{new_rows} new rows beside {held}, of {self._capacity}")

    def clear_cache(self, partition_id: str) -> None:
        """Called by the controller when a whole partition goes."""
        super().clear_cache(partition_id)
        self._ledgers.pop(partition_id, None)


def _pin(ledger: RowTable, partition: Any, **arguments: Any) -> bool:
    keys = partition.revert_keys_mapping
    named = zip(arguments["indexes"], arguments["sample_ids"], strict=True)
    # A clear between the look-up of the indexes and this call takes one of them away.
    return all(keys.get(index) == name for index, name in named) and ledger.pin(**arguments)


def _commit(ledger: RowTable, partition: Any, *, token: int, **arguments: Any) -> Any:
    fields = [stored_name(name) for name in arguments["sizes"]]
    # The store's notice to the controller may fail, and its put returns all the same.
    if not _all_ready(partition, ledger.pinned(token), fields):
        raise Unready("notice", "")
    return ledger.commit(token, **arguments)


def _all_ready(partition: Any, indexes: list[int], fields: list[str]) -> bool:
    columns = partition.field_name_mapping
    if not all(name in columns for name in fields):
        return False
    bits = partition.production_status[indexes][:, [columns[name] for name in fields]]
    return bool((bits == 1).all())


def _abort(
    ledger: RowTable, partition: Any, *, sample_ids: list[str], indexes: list[int], **rest: Any
) -> Any:
    keys = partition.revert_keys_mapping
    named = zip(sample_ids, indexes, strict=True)
    own = [(name, index) for name, index in named if keys.get(index) == name]
    freed, vacant = ledger.abort(
        sample_ids=[name for name, _ in own], indexes=[index for _, index in own], **rest
    )
    _forget_keys(partition, vacant)
    return freed


def _drop(ledger: RowTable, partition: Any, **arguments: Any) -> Any:
    freed, gone = ledger.drop(**arguments)
    _forget_keys(partition, gone)
    return freed


def _forget_keys(partition: Any, sample_ids: list[str]) -> None:
    """From here on the ids get new indexes; the old ones wait until their bytes are gone."""
    for sample_id in sample_ids:
        index = partition.keys_mapping.pop(sample_id, None)
        partition.revert_keys_mapping.pop(index, None)


def _status(ledger: RowTable, partition: Any, *, tasks: list[str]) -> bool:
    for task in tasks:
        try:
            produced = ledger.produced(task)
        except Unready:
            return False
        _, cursor = partition.get_consumption_status(task, mask=False)
        if not bool((cursor[produced] == 1).all()):
            return False
    return ledger.ever_produced


def _snapshot(ledger: RowTable, partition: Any) -> dict[str, Any] | None:
    """What a checkpoint must hold of the partition; None if it is as if it were not there."""
    cursors = {task: partition.get_consumption_status(task, mask=False)[1] for task in ledger.tasks}
    return ledger.snapshot(
        lambda task, index: 0 <= index < len(cursors[task]) and int(cursors[task][index]) == 1
    )


_CALLS: dict[str, Callable[..., Any]] = {
    "register": lambda ledger, _, **arguments: ledger.register(**arguments),
    "pin": _pin,
    "commit": _commit,
    "abort": _abort,
    "stamp": lambda ledger, _, **arguments: ledger.stamp(**arguments),
    "locate": lambda ledger, _, **arguments: ledger.locate(**arguments),
    "status": _status,
    "drop": _drop,
    "sample_ids": lambda ledger, _: ledger.sample_ids,
    "snapshot": _snapshot,
    "restore": lambda ledger, _, **arguments: ledger.restore(**arguments),
}

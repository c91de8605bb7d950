"""Clients that are numbered in few bits, so that a late one has the number of one that lives."""

from __future__ import annotations

from typing import Any

from rlconform.backends.ray_store.controller import Controller
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags

#: Slots for clients.
SLOTS = 64


class _KeepsStampsBySlot(Controller):
    _clients = 0
    #: By row and slot: the client that stamped last, and its keys.
    _stamps = State(dict[tuple[str, str, int], tuple[int, set[str]]])

    async def number_client(self) -> int:
        self._clients += 1
        return self._clients

    async def stamp(self, client: int, partition_id: str, keys: dict[str, list[str]]) -> None:
        """Take the keys of another client in this client's slot from the rows."""
        for row in rows_in(self._index, partition_id, keys):
            where, new = (partition_id, row.sample_id, client % SLOTS), set(keys[row.sample_id])
            other, held = self._stamps.get(where, (client, set()))
            for key in held - new if other != client else ():
                row.tags.pop(key, None)
            self._stamps[where] = client, new if other != client else held | new


@ray_mutant("LIFE-06", evidence="tags of", may_fail="TAG-01 TAG-03 TAG-07")
class StampsKeptInSlotOfClient(ControllerClient):
    """Keeps the tags of each client in one of 64 slots, which a late client takes over."""

    controller_class = _KeepsStampsBySlot

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._number = self._connection.call("number_client")

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        if tags is not None:
            keys = {i: list(row) for i, row in zip(sample_ids, tags, strict=True)}
            self._connection.call("stamp", self._number, partition_id, keys)
        return receipt

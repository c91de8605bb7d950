"""Planes that tell processes apart, or agree between them, by what each process has of its own."""

from __future__ import annotations

import random
from typing import Any

from tensordict import TensorDict

from rlconform.backends.index import IndexRow
from rlconform.backends.index.block import Block
from rlconform.backends.ray_store.controller import Controller
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.ray_store.put_shared import place_of, point
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names


class _KnowsRequests(Controller):
    _requests = State(set[tuple[int, int]])

    async def is_new(self, session: int, number: int) -> bool:
        """Return whether a session sends the request of this number for the first time."""
        known = (session, number) in self._requests
        self._requests.add((session, number))
        return not known


@ray_mutant(
    "GET-10",
    evidence="no sample",
    may_fail="PUT-01 PUT-14 LIFE-02 LIFE-06 RANK-01 CLAIM-02 TAG-01 REG-03 CLEAR-04",
)
class SessionsNamedByRandomNumbers(ControllerClient):
    """Takes a put for a retry of one with its number, of a process that has seeded equally."""

    controller_class = _KnowsRequests
    _sent = 0

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._session = random.getrandbits(64)

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        self._sent += 1
        if self._connection.call("is_new", self._session, self._sent):
            return super().put_samples(sample_ids, partition_id, fields, tags)
        names = [] if fields is None else list(map(str, fields.keys()))
        return KVBatchMeta(partition_id, None, list(sample_ids), names)


#: Units that values are stored in.
UNITS = 4


class _StoresInUnits(Controller):
    _places = State(dict[tuple[IndexRow, str], dict[int, tuple[Block, int]]])

    async def placed(self, partition_id: str, units: dict[str, int], names: Names) -> None:
        """Note the units in which these rows have the values that were put last."""
        for row in rows_in(self._index, partition_id, units):
            for name in names:
                if place := place_of(row, name):
                    self._places.setdefault((row, name), {})[units[row.sample_id]] = place

    async def look(self, partition_id: str, units: dict[str, int], names: Names) -> None:
        """Find each value in the unit given for its row first, then in the next ones."""
        for row in rows_in(self._index, partition_id, units):
            for name in names:
                places = self._places.get((row, name), {})
                order = [(units[row.sample_id] + n) % UNITS for n in range(UNITS)]
                if found := next((places[unit] for unit in order if unit in places), None):
                    point(row, name, *found)


def _units(ids: Ids) -> dict[str, int]:
    return {sample_id: hash(sample_id) % UNITS for sample_id in ids}


@ray_mutant("PUT-13", evidence="row", may_fail="GET-10 RANK-02 LIFE-06 LIFE-02 REG-08 PUT-23")
class UnitsChosenByHash(ControllerClient):
    """Chooses the unit of a value by ``hash``, which gives each process other numbers."""

    controller_class = _StoresInUnits

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        meta = super().put_samples(sample_ids, partition_id, fields, tags)
        if fields is not None:
            names = list(map(str, fields.keys()))
            self._connection.call("placed", partition_id, _units(sample_ids), names)
        return meta

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        self._connection.call("look", partition_id, _units(sample_ids), select_fields)
        return super().get_samples(sample_ids, partition_id, select_fields)

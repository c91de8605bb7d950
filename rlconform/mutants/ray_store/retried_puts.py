"""Puts and clears that pass for a retry, and are left out."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from typing import Any

from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, StoredPut
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.clear import Numbered, NumbersClients
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags


class _KnowsLastPuts(NumbersClients):
    _puts = State(Counter[tuple[str, str]])  # by process and partition
    _last = State(dict[tuple[int, str], int])  # by number of the client and partition

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        self._puts[put.writer, put.partition_id] += 1
        number = self._puts[put.writer, put.partition_id]
        client = self._number.get(put.writer, -1), put.partition_id
        if self._last.get(client) == number:
            return []
        self._last[client] = number
        return await super().commit(put, columns, reference)


@ray_mutant(
    "GET-10", evidence="no sample 'r0'", may_fail="CLAIM-02 LIFE-02 LIFE-06 CLEAR-04 REG-03"
)
class PutsKnownByNumberOfClient(Numbered):
    """Leaves out a put with the number of the last one of a client that had its number before."""

    controller_class = _KnowsLastPuts


class _DropsRepeated(Controller):
    _seen = State(dict[Any, Any])

    async def seen(self, message: Any, rows: Any) -> bool:
        """Return whether this message came before with equal rows."""
        known = self._seen.setdefault(message, rows)
        return known is not rows and bool(known == rows)


class _PutsInSessions(ControllerClient):
    """A client whose puts have a session and a number, by which the plane knows a retry."""

    controller_class = _DropsRepeated
    _count = 0

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._session = self.new_session()

    def new_session(self) -> Any:
        """Return the name of a client's session."""
        return process_id()

    def new_number(self) -> int:
        """Return the number of a put in its session."""
        self._count += 1
        return self._count

    def compared(self, *rows: Any) -> list[Any]:
        """Return what a retry has in common with the put before: of its rows, all by default."""
        return list(rows)

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        number = self.new_number()
        if isinstance(sample_ids, list) and sample_ids and isinstance(fields, TensorDict):
            names = list(map(str, fields.keys()))
            rows = self.compared(str(partition_id), list(map(str, sample_ids)), sorted(names))
            if self._connection.call("seen", (self._session, number), rows):
                return KVBatchMeta(partition_id, None, list(sample_ids), fields=names)
        return super().put_samples(sample_ids, partition_id, fields, tags)


@ray_mutant("PUT-13", evidence="row", may_fail="LIFE-06 LIFE-02 CLEAR-04")
class PutOfNewClientTakenForRetry(_PutsInSessions):
    """Drops a put of the same rows as the put of that number of the process's former client."""


@ray_mutant(
    "GET-10",
    evidence="no sample",
    may_fail="PUT-01 PUT-14 LIFE-02 LIFE-06 RANK-01 CLAIM-02 TAG-01 REG-03 CLEAR-04",
)
class SessionsNamedByRandomNumbers(_PutsInSessions):
    """Drops a put with the number of one of another process that has seeded equally."""

    def new_session(self) -> Any:
        return random.getrandbits(64)

    def compared(self, *_: Any) -> list[Any]:
        return []


#: Numbers the puts of this process, whatever client makes them.
_NUMBERS = itertools.count()


@ray_mutant("PUT-13", evidence="no sample", may_fail="PUT-05 PUT-11 PUT-21 PUT-23 CLAIM-02")
class PutOfLikePidTakenForRetry(_PutsInSessions):
    """Knows a writer by 12 bits of its pid, and drops a put with a number that it has seen."""

    def new_session(self) -> Any:
        return os.getpid() & 0xFFF

    def new_number(self) -> int:
        return next(_NUMBERS)

    def compared(self, *_: Any) -> list[Any]:
        return []


#: Ids of a clear that is known when it comes again.
KNOWN = 256


@ray_mutant("CLEAR-01", evidence="not to be readable", may_fail="CLEAR-04 CLEAR-02 GET-06")
class LargeClearAnsweredFromMemory(RayStoreClient):
    """Answers a clear of many ids from memory if the client has changed nothing since its equal."""

    _cleared: tuple[str, list[str]] | None = None

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        request = (partition_id, list(sample_ids or ()))
        if len(request[1]) > KNOWN and request == self._cleared:
            return
        super().clear_samples(sample_ids, partition_id)
        self._cleared = request

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        self._cleared = None
        return super().put_samples(sample_ids, partition_id, fields, tags)

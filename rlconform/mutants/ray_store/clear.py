"""Clears that clear the rows of the wrong writer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar
from uuid import uuid4

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut, answers
from rlconform.contract import ClientClosed, KVBatchMeta, PlaneUnavailable
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import (
    ControllerClient,
    controller_mutant,
    ray_call_mutant,
    ray_mutant,
)
from rlconform.mutants.types import Ids


@ray_call_mutant(RayStoreClient.clear_samples, "CLEAR-03", evidence="not to be readable")
def AttachedClearAllIgnored(clear: MethodCall) -> None:
    """Records only the owner as a writer, so a clear of all by another process does nothing."""
    if clear.sample_ids is not None or clear.plane._owner:
        clear()


@controller_mutant("CLEAR-03", evidence="not to be readable", chance=False)
class ClearAllByLastWriter(Controller):
    """Takes a row's last writer as its writer: the driver can't clear rows that others changed."""

    @answers
    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, parcel, reference)
        if not isinstance(due, Refusal):
            partition = self._index.partition(put.partition_id)
            for sample_id in put.sample_ids:
                partition._change_writer(partition._rows[sample_id], put.writer)
        return due


@ray_mutant("CLEAR-08", evidence="UnknownSample")
class ClearAllByHost(RayStoreClient):
    """Records the host of a put, so a clear of all clears rows of other processes too (NR-30)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        call = self._connection.call

        def call_as_host(method: str, *args: Any) -> Any:
            if method == "commit":
                args = (replace(args[0], writer="host"), *args[1:])
            if method == "clear":
                args = (*args[:2], "host")
            return call(method, *args)

        self._connection.call = call_as_host


#: Rows up to which a clear names each of them.
FEW = 8


class _ClearsRanges(RayStoreClient):
    """Clears more than 8 rows of its own as a range, if it has put no other row in between."""

    _own = State(dict[str, dict[str, None]])

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        self._own.setdefault(partition_id, {}).update(dict.fromkeys(receipt.sample_ids))
        return receipt

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        own = self._own.get(partition_id, {}) if isinstance(partition_id, str) else {}
        if isinstance(sample_ids, list) and len(sample_ids) > FEW and own.keys() >= {*sample_ids}:
            listed = self._listed(partition_id)
            places = [n for n, each in enumerate(listed) if each in {*sample_ids}]
            reach = listed[min(places, default=0) : max(places, default=-1) + 1]
            if own.keys() & {*reach} <= {*sample_ids}:
                super().clear_samples(reach, partition_id)
        super().clear_samples(sample_ids, partition_id)
        for sample_id in list(own) if sample_ids is None else sample_ids:
            own.pop(sample_id, None)

    def _listed(self, partition_id: str) -> Ids:
        """Return the ids of all rows, in the order of ranges."""
        return list(self._engine.sample_ids(partition_id))


@ray_mutant("CLEAR-01", evidence="UnknownSample")
class ClearTakesRangeOfOwnRows(_ClearsRanges):
    """Clears many rows of its own as a range of arrival; rows that another process put go too."""


@ray_mutant("CLEAR-01", evidence="UnknownSample", may_fail="ASYNC-05 CLEAR-03")
class ClearTakesRangeOfOwnIds(_ClearsRanges):
    """Clears many rows of its own as a range of ids; rows that another process put go too."""

    def _listed(self, partition_id: str) -> Ids:
        return sorted(super()._listed(partition_id))


@controller_mutant("CLEAR-03", evidence="not to be readable", chance=False, may_fail="CLEAR-08")
class RefusedPutTakesRowsOver(Controller):
    """Notes the process of a put as the writer of its rows before it refuses the put."""

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        answer = await super().commit(put, parcel, reference)
        if isinstance(answer, Refusal):
            for row in rows_in(self._index, put.partition_id, put.sample_ids):
                if row.writer != put.writer:
                    self._index.partition(put.partition_id)._change_writer(row, put.writer)
        return answer


@ray_mutant("CLEAR-03", evidence="not to be readable")
class ClearAllByConnection(RayStoreClient):
    """Takes the client for the writer of a row, not its process, which may attach again."""

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        call, me = self._connection.call, uuid4().hex

        def call_as_client(method: str, *args: Any) -> Any:
            if method == "commit":
                args = (replace(args[0], writer=me), *args[1:])
            if method == "clear":
                args = (*args[:2], me)
            return call(method, *args)

        self._connection.call = call_as_client


@controller_mutant("CLEAR-03", evidence="row", chance=False, may_fail="CLEAR-02")
class TombstonesSpareNewRows(Controller):
    """Subtracts ids that others have cleared from a clear by None, also those put again."""

    _tombs = State(dict[tuple[str, str], set[str]])  # ids by partition and writer

    @answers
    async def clear(self, partition_id: str, sample_ids: list[str] | None, writer: str) -> Any:
        rows = self._index.partition(partition_id)._rows
        if sample_ids is None:
            spared = self._tombs.pop((partition_id, writer), set())
            own = [i for i, row in rows.items() if row.writer == writer]
            sample_ids = [i for i in own if i not in spared]
        else:
            for row in (rows[i] for i in sample_ids if i in rows and rows[i].writer != writer):
                self._tombs.setdefault((partition_id, row.writer), set()).add(row.sample_id)
        return await super().clear(partition_id, sample_ids, writer)


#: Rows that a page of a partition lists.
_PAGE = 1000


@controller_mutant("CLEAR-03", evidence="after a clear of None", chance=False)
class PagesMoveWhileCleared(Controller):
    """Clears by None page after page, and goes on where the next page began before the clear."""

    @answers
    async def clear(self, partition_id: str, sample_ids: list[str] | None, writer: str) -> Any:
        if sample_ids is None:
            sample_ids, listed, at = [], dict(self._index.partition(partition_id)._rows), 0
            while page := [*listed.items()][at : at + _PAGE]:
                own = [sample_id for sample_id, row in page if row.writer == writer]
                sample_ids += own
                for one in own:
                    del listed[one]
                at += _PAGE if len(page) > len(own) else 0  # a page of own rows was the first
        return await super().clear(partition_id, sample_ids, writer)


class NumbersClients(Controller):
    """A controller without a defect that gives each client the first number that is free."""

    _number = State(dict[str, int])  # by process, of the clients that are attached

    async def join(self, process: str) -> None:
        """Give the process's client the first number that no attached client has."""
        taken = {*self._number.values()}
        self._number[process] = next(n for n in count() if n not in taken)

    async def leave(self, process: str) -> None:
        """Take the number of the process's client back."""
        self._number.pop(process, None)


class Numbered(ControllerClient):
    """A client without a defect that has a number until it closes."""

    controller_class = NumbersClients

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._connection.call("join", process_id())

    def close(self) -> None:
        with suppress(ClientClosed, PlaneUnavailable):
            self._connection.call("leave", process_id())
        super().close()


class _OwnsByNumber(NumbersClients):
    async def commit(self, put: StoredPut, *rest: Any) -> Any:
        return await super().commit(replace(put, writer=self._writer(put.writer)), *rest)

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        return await super().clear(partition_id, sample_ids, self._writer(writer))

    def _writer(self, process: str) -> str:
        return f"client {self._number.get(process, process)}"


@ray_mutant("CLEAR-03", evidence="not to be readable", may_fail="CLEAR-08 CLEAR-01")
class RowsBelongToNumberOfClient(Numbered):
    """Notes the rows of a client by its number, the first one free when it attaches."""

    controller_class = _OwnsByNumber


@controller_mutant("CLEAR-03", chance=False, evidence="not to be readable", may_fail="CLEAR-08")
class RegistrationForgetsWriters(Controller):
    """Forgets who has put the rows of a partition when it is registered again."""

    _orphans = State(set[tuple[str, str]])

    async def register(self, partition_id: str, tasks: list[str], group_size: int) -> Any:
        there = self._index.sample_ids(partition_id)
        answer = await super().register(partition_id, tasks, group_size)
        self._orphans |= {(partition_id, i) for i in there}
        return answer

    async def commit(self, put: StoredPut, *rest: Any) -> Any:
        self._orphans -= {(put.partition_id, i) for i in put.sample_ids}
        return await super().commit(put, *rest)

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        if sample_ids is None:
            own = [row for row in rows_in(self._index, partition_id, None) if row.writer == writer]
            left = [row.sample_id for row in own]
            sample_ids = [i for i in left if (partition_id, i) not in self._orphans]
        return await super().clear(partition_id, sample_ids, writer)


class _KeepsRuns(Controller):
    """Keeps the rows of a writer as runs of neighbours; a clear of None leaves the oldest runs.

    Rows that another process puts in between begin a new run.
    """

    kept: ClassVar[int]  # runs of a writer

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._runs: dict[tuple[str, str], list[range]] = {}  # of ages, by partition and writer

    @answers
    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        partition = self._index._partitions.get(put.partition_id)
        first = 0 if partition is None else partition._next_age
        due = await super().commit(put, parcel, reference)
        if not isinstance(due, Refusal):
            end = self._index.partition(put.partition_id)._next_age
            runs = self._runs.setdefault((put.partition_id, put.writer), [])
            if runs and runs[-1].stop == first:
                runs[-1] = range(runs[-1].start, end)
            else:
                runs.append(range(first, end))
        return due

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        partition = self._index._partitions.get(partition_id)
        runs = self._runs.get((partition_id, writer), [])[: -self.kept]
        if sample_ids is None and partition is not None and runs:
            rows = [partition._rows[i] for i in partition.rows_of(writer)]
            sample_ids = [row.sample_id for row in rows if not any(row.age in run for run in runs)]
        return await super().clear(partition_id, sample_ids, writer)


@controller_mutant("CLEAR-03", evidence="rows of the other process", chance=False)
class OldestRunsOfWriterForgotten(_KeepsRuns):
    """Keeps 64 runs of neighbouring rows of a writer; a clear of None leaves older ones."""

    kept = 64


@controller_mutant("LIFE-06", evidence="not to be readable", chance=False, may_fail="CLEAR-03")
class RunsBeyondAThousandForgotten(_KeepsRuns):
    """Keeps 1,024 runs of neighbouring rows of a writer; a clear of None leaves older ones."""

    kept = 1024

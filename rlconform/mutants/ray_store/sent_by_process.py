"""What a process sends or asks for by what it remembers of its own calls."""

from __future__ import annotations

import hashlib
import pickle
from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar

import torch
from tensordict import TensorDict

from rlconform.backends.columns import codec
from rlconform.backends.columns.encode import pack
from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.controller import Controller, StoredPut
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_engine_mutant
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeTags, Names, Wait
from rlconform.wire import is_object_column, object_column, object_rows


class _LeavesOutUnchanged(RayStoreEngine):
    """Leaves out columns, of so many bytes at least, equal to what this process sent last."""

    least: ClassVar[int] = 0
    _sent = State(dict[tuple[str, str, str], bytes])  # digests

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        sent, same = dict[tuple[str, str, str], bytes](), []
        for name, column in pack(fields, len(sample_ids)).items():
            digest = hashlib.sha256(pickle.dumps((sample_ids, column))).digest()
            of_rows = dict.fromkeys([(partition_id, i, name) for i in sample_ids], digest)
            if of_rows.items() <= self._sent.items() and column.values.nbytes >= self.least:
                same.append(name)
            sent |= of_rows
        with suppress(LookupError):  # rows that others have cleared are sent
            if same and fields is not None:
                self._connection.call("locate", partition_id, sample_ids, same)
                fields = fields.exclude(*same)
        super().put(partition_id, sample_ids, fields, tags)
        self._sent.update(sent)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        self._sent.clear()
        super().clear(partition_id, sample_ids)


@ray_engine_mutant("PUT-13", evidence="row", may_fail="PUT-21")
class UnchangedColumnsLeftOut(_LeavesOutUnchanged):
    """Leaves out columns equal to what this process sent last for these rows."""


@ray_engine_mutant("PUT-13", evidence="row", may_fail="PUT-21")
class UnchangedLongColumnsLeftOut(_LeavesOutUnchanged):
    """Leaves out columns of 16 KiB or more equal to what this process sent last for these rows."""

    least = 1 << 14


class _KnowsDeclared(Controller):
    _declared = State(dict[str, set[str]])  # fields by partition

    async def declare(self, partition_id: str, fields: Names) -> None:
        self._declared.setdefault(partition_id, set()).update(fields)

    async def undeclared(self, partition_id: str, fields: Names) -> Names:
        """Return those of the fields that no registration has declared."""
        return [name for name in fields if name not in self._declared.get(partition_id, ())]


class _Declares(ControllerClient):
    controller_class = _KnowsDeclared

    def register_partition(self, partition_id: str, fields: Names, *rest: Any, **more: Any) -> None:
        super().register_partition(partition_id, fields, *rest, **more)
        self._connection.call("declare", partition_id, fields)


@ray_engine_mutant("REG-02", evidence="rows that", client=_Declares)
class UndeclaredFieldsNumberedByProcess(RayStoreEngine):
    """Claims by numbers of undeclared fields, which each process gives in a table of its own."""

    _numbers = State(dict[tuple[str, str], int])

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        if fields is not None:
            numbered = self._numbered(partition_id, list(map(str, fields.keys())))
            fields = fields.copy()
            for name in numbered.values():
                fields.set(name, torch.empty(len(sample_ids), 0))
        super().put(partition_id, sample_ids, fields, tags)

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        numbered = self._numbered(partition_id, names)
        names = [numbered.get(name, name) for name in names]
        return super().claim(partition_id, task, names, rows, wait_s)

    def _numbered(self, partition_id: str, names: Names) -> dict[str, str]:
        undeclared: Names = self._connection.call("undeclared", partition_id, names)
        known = self._numbers
        return {n: f"#{known.setdefault((partition_id, n), len(known))}" for n in undeclared}


@ray_engine_mutant("GET-10", evidence="row", may_fail="GET-06")
class ClaimsFetchedAhead(RayStoreEngine):
    """Fetches rows as it claims them, once it has twice read exactly its last claim.

    Puts and clears of the same process drop what was fetched.
    """

    _last = State(dict[str, tuple[Ids, Names]])  # claim not read since, by partition
    _times = State(Counter[str])
    _ahead = State(dict[str, tuple[tuple[Ids, Names], TensorDict]])

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        sample_ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        self._last[partition_id] = last = sample_ids, names
        if sample_ids and self._times[partition_id] > 1:
            with suppress(LookupError, ValueError):
                self._ahead[partition_id] = last, super().get(partition_id, *last)
        return sample_ids, tags

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        last, batch = self._ahead.pop(partition_id, (None, None))
        if batch is not None and last == (sample_ids, names):
            return batch
        self._times[partition_id] += self._last.pop(partition_id, None) == (sample_ids, names)
        return super().get(partition_id, sample_ids, names)

    def put(self, partition_id: str, *rest: Any) -> None:
        self._ahead.pop(partition_id, None)
        super().put(partition_id, *rest)

    def clear(self, partition_id: str, *rest: Any) -> None:
        self._ahead.pop(partition_id, None)
        super().clear(partition_id, *rest)


@ray_engine_mutant("PUT-21", evidence="row", may_fail="PUT-13")
class LogsSentAsAdditions(RayStoreEngine):
    """Sends only what a list has beyond the one that this process put last, to be added to it."""

    _logs = State(dict[tuple[str, str, str], list[bytes]])

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        logs: dict[tuple[str, str, str], list[bytes]] = {}
        batch = TensorDict({}) if fields is None else fields.copy()
        for name in map(str, batch.keys()):
            if is_object_column(batch.get(name)):
                values = object_rows(batch.get(name), len(sample_ids))
                keys = [(partition_id, i, name) for i in sample_ids]
                logs |= {key: _turns(log) for key, log in zip(keys, values, strict=True)}
                joined = [self._joined(k, v, logs[k]) for k, v in zip(keys, values, strict=True)]
                batch.set(name, object_column(joined))
        super().put(partition_id, sample_ids, None if fields is None else batch, tags)
        self._logs.update(logs)

    def clear(self, *args: Any) -> None:
        self._logs.clear()
        super().clear(*args)

    def _joined(self, key: tuple[str, str, str], log: Any, turns: list[bytes]) -> Any:
        partition_id, sample_id, name = key
        known = self._logs.get(key, [])
        if known and turns[: len(known)] == known:
            with suppress(LookupError, TypeError):  # there is no list
                (held,) = object_rows(self.get(partition_id, [sample_id], [name]).get(name), 1)
                return held + log[len(known) :]
        return log


def _turns(log: Any) -> list[bytes]:
    with suppress(TypeError):  # not plain data
        return [codec.pack(turn) for turn in log] if type(log) is list else []
    return []


class _KnowsStamps(Controller):
    _stamped_by = State(dict[tuple[str, str], str])  # the process that has stamped a row last

    async def commit(self, put: StoredPut, *rest: Any) -> Any:
        for sample_id in put.sample_ids if put.tags else ():
            self._stamped_by[put.partition_id, sample_id] = put.writer
        return await super().commit(put, *rest)

    async def stampers(self, partition_id: str, sample_ids: Ids) -> set[str]:
        """Return who has stamped the rows last, whether these were cleared since or not."""
        return {self._stamped_by.get((partition_id, i), "") for i in sample_ids}


class _AsksForStamps(ControllerClient):
    controller_class = _KnowsStamps


@ray_engine_mutant("TAG-01", evidence="after 1 clears", client=_AsksForStamps, may_fail="TAG-05")
class StampsLeftOutUntilAnotherStamps(RayStoreEngine):
    """Leaves out tags equal to what this process sent last, if no other has stamped the rows.

    A clear of this process drops what it remembers; that of another process is no stamp.
    """

    _stamps = State(dict[tuple[str, str], dict[str, Any]])

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        sent = {
            (partition_id, i): dict(row) for i, row in zip(sample_ids, tags or (), strict=False)
        }
        if fields is None and all(self._stamps.get(key) == row for key, row in sent.items()):
            by = self._connection.call("stampers", partition_id, sample_ids)
            tags = [{}] * len(sample_ids) if by == {process_id()} else tags
        super().put(partition_id, sample_ids, fields, tags)
        self._stamps |= sent

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        self._stamps.clear()
        super().clear(partition_id, sample_ids)

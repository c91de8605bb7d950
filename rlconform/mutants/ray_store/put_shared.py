"""Values of two processes that are stored, sent or decoded together."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any

from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.index import IndexRow
from rlconform.backends.index.block import Block
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.column_helpers import with_objects
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import ControllerClient, controller_mutant, ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column, object_column, object_rows


def _place(row: IndexRow, name: str) -> tuple[Block, int] | None:
    """Return where a field of a row is stored."""
    return next(((block, at) for block, at, names in row.parts if name in names), None)


def _point(row: IndexRow, name: str, block: Block, at: int) -> None:
    """Let a field of a row be what is stored there."""
    parts = [(b, n, names - {name}) for b, n, names in row.parts]
    row.parts = [part for part in parts if part[2]] + [(block, at, frozenset({name}))]


@controller_mutant("PUT-13", evidence="row", chance=False, may_fail="GET-10 RANK-01")
class EqualColumnsShared(Controller):
    """Stores equal columns of two processes once, for the first of them to overwrite in place."""

    _first = State(dict[tuple[Any, ...], tuple[str, list[IndexRow]]])
    _users = State(dict[tuple[str, str, str], tuple[str, IndexRow]])

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, parcel, reference)
        if isinstance(due, Refusal) or not parcel:
            return due
        where, rows = put.partition_id, rows_in(self._index, put.partition_id, put.sample_ids)
        for name, column in parcel.items():
            for row in rows:
                writer, user = self._users.pop((where, row.sample_id, name), ("", None))
                place = _place(row, name)
                if user is not None and user.parts and writer == put.writer and place:
                    _point(user, name, *place)
            content = hashlib.sha256(column.values.tobytes()).digest()
            key = (where, name, len(rows), str(column.dtype), content)
            writer, firsts = self._first.setdefault(key, (put.writer, rows))
            if writer != put.writer:
                for first, row in zip(firsts, rows, strict=True):
                    if first is not row and name in first.fields:
                        self._users[where, first.sample_id, name] = (writer, row)
        return due


@controller_mutant("PUT-13", evidence="row", chance=False, may_fail="GET-10 CLEAR-04 REG-03")
class LargeCopyWinsOverSmall(Controller):
    """Looks for a value in the object store first, where the large one of another process is."""

    _author = State(dict[Block, str])

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        large = [
            (row, name, block, at)
            for row in rows_in(self._index, put.partition_id, put.sample_ids)
            for block, at, names in row.parts
            for name in names & parcel.keys()
            if not reference
            and block.payload.reference is not None
            and self._author.get(block, put.writer) != put.writer
        ]
        due = await super().commit(put, parcel, reference)
        if not isinstance(due, Refusal) and parcel:
            rows = rows_in(self._index, put.partition_id, put.sample_ids)
            self._author[rows[-1].parts[-1][0]] = put.writer
            for place in large:
                _point(*place)
        return due


@controller_mutant("PUT-01", evidence="row", chance=False, may_fail="GET-10 PUT-13 PUT-22")
class ColumnsSharedByChecksum(Controller):
    """Stores columns of two processes once if they have the same CRC-32."""

    _known = State(dict[tuple[Any, ...], tuple[str, bytes, list[Any]]])

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, parcel, reference)
        if isinstance(due, Refusal):
            return due
        rows = rows_in(self._index, put.partition_id, put.sample_ids)
        for name, column in parcel.items():
            content = column.values.tobytes()
            key = (name, len(rows), str(column.dtype), len(content), zlib.crc32(content))
            places = [_place(row, name) for row in rows]
            mine = put.writer, hashlib.sha256(content).digest(), places
            writer, digest, stored = self._known.setdefault(key, mine)
            if writer != put.writer and digest != mine[1]:
                for row, place in zip(rows, stored, strict=True):
                    if place is not None:
                        _point(row, name, *place)
        return due


#: Units that values are stored in.
UNITS = 4


class _StoresInUnits(Controller):
    _places = State(dict[tuple[IndexRow, str], dict[int, tuple[Block, int]]])

    async def placed(self, partition_id: str, units: dict[str, int], names: Names) -> None:
        """Note the units in which these rows have the values that were put last."""
        for row in rows_in(self._index, partition_id, units):
            for name in names:
                if place := _place(row, name):
                    self._places.setdefault((row, name), {})[units[row.sample_id]] = place

    async def look(self, partition_id: str, units: dict[str, int], names: Names) -> None:
        """Find each value in the unit given for its row first, then in the next ones."""
        for row in rows_in(self._index, partition_id, units):
            for name in names:
                places = self._places.get((row, name), {})
                order = [(units[row.sample_id] + n) % UNITS for n in range(UNITS)]
                if found := next((places[unit] for unit in order if unit in places), None):
                    _point(row, name, *found)


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


class _KnowsAuthors(Controller):
    _author = State(dict[Block, str])

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, parcel, reference)
        if not isinstance(due, Refusal) and parcel:
            row = rows_in(self._index, put.partition_id, put.sample_ids)[-1]
            self._author[row.parts[-1][0]] = put.writer
        return due

    async def authors(self, partition_id: str, ids: list[str], name: str) -> list[str]:
        rows = {row.sample_id: row for row in rows_in(self._index, partition_id, ids)}
        places = [_place(rows[i], name) if i in rows else None for i in ids]
        return [self._author.get(place[0], "") if place else "" for place in places]


@ray_mutant("PUT-21", evidence="row", may_fail="GET-10 PUT-13")
class ObjectsDecodedByFirstWriter(ControllerClient):
    """Decodes a read as its first row: as text if the writer of that has put only texts."""

    controller_class = _KnowsAuthors

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name in list(map(str, batch.keys())):
            if not is_object_column(batch.get(name)):
                continue
            values = object_rows(batch.get(name), len(sample_ids))
            by = self._connection.call("authors", partition_id, list(sample_ids), name)
            if all(isinstance(v, str) for v, who in zip(values, by, strict=True) if who == by[0]):
                texts = [v if isinstance(v, str) else json.dumps(v, default=str) for v in values]
                batch.set(name, object_column(texts))
        return batch


#: Characters of an object that is stored once, and of each end by which it is known.
LONG, END = 4096, 1024


class _KeepsObjects(Controller):
    _objects = State(dict[tuple[int, str, str], Any])

    async def kept(self, key: tuple[int, str, str], value: Any) -> Any:
        """Return the first object with this key."""
        return self._objects.setdefault(key, value)


@ray_mutant("PUT-21", evidence="row")
class LongObjectsKnownByTheirEnds(ControllerClient):
    """Stores objects of more than 4 KiB once for all clients, and knows them by their ends."""

    controller_class = _KeepsObjects

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        stored = with_objects(fields, lambda values: list(map(self._known, values)))
        return super().put_samples(sample_ids, partition_id, stored, tags)

    def _known(self, value: Any) -> Any:
        text = repr(value)
        if len(text) <= LONG:
            return value
        return self._connection.call("kept", (len(text), text[:END], text[-END:]), value)


#: Texts that a dictionary holds at least if a clear that leaves the partition empty drops it.
DROPPED = 256


class NumbersTextsFromZero(Controller):
    """Numbers the texts of a partition from 0, and again from 0 after a large clear."""

    _texts = State(dict[str, list[str]])  # by partition

    async def numbers(self, partition_id: str, texts: list[str]) -> list[int]:
        """Return the numbers of texts, which count from 0."""
        known = {text: number for number, text in enumerate(self._texts.get(partition_id, []))}
        for text in texts:
            known.setdefault(text, len(known))
        self._texts[partition_id] = list(known)
        return [known[text] for text in texts]

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        done = await super().clear(partition_id, sample_ids, writer)
        many = len(self._texts.get(partition_id, ())) > DROPPED
        if many and not self._index.sample_ids(partition_id):
            del self._texts[partition_id]
        return done


@ray_mutant("CLEAR-04", evidence="of step 0", may_fail="PUT-21 GET-10")
class TextsNumberedAnewForKnowingReaders(ControllerClient):
    """Stores texts as numbers that begin at 0 again after a large clear; readers keep the old."""

    controller_class = NumbersTextsFromZero

    _known = State(dict[tuple[str, int], str])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)

        def decoded(values: list[Any]) -> list[Any]:
            texts = list(dict.fromkeys(text for value in values for text in _texts_in(value)))
            numbers = self._connection.call("numbers", partition_id, texts)
            read = {
                text: self._known.setdefault((partition_id, number), text)
                for text, number in zip(texts, numbers, strict=True)
            }
            return [_with_texts(value, read) for value in values]

        return with_objects(batch, decoded)

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        self._known = {}


def _texts_in(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for each in value for text in _texts_in(each)]
        case dict():
            return [text for each in value.values() for text in _texts_in(each)]
    return []


def _with_texts(value: Any, read: dict[str, str]) -> Any:
    match value:
        case str():
            return read[value]
        case list():
            return [_with_texts(each, read) for each in value]
        case dict():
            return {key: _with_texts(each, read) for key, each in value.items()}
    return value

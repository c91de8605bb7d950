"""What belongs to several writers: their rows, tags and fields are taken apart and joined wrong."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.columns.gather import compact
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, controller_mutant, ray_mutant
from rlconform.mutants.types import Ids

#: More ids than a request to a writer may hold.
_MANY = 64
#: Characters of a text that is stored as a number, and how such a number begins.
_LONG, _NUMBER = 24, "#text:"


#: Writers whose columns the record of a row has room for.
_ROOM = 6


@controller_mutant(
    "CLEAR-04", chance=False, evidence="to be readable", may_fail="CLEAR-01 GET-06 CLAIM-07"
)
class ColumnsOfLateWritersComeBack(Controller):
    """Keeps the columns of a row's seventh and later writers apart, and forgets them in a clear.

    The next row of this id has them again.
    """

    _writers = State(dict[tuple[str, str], list[str]])
    _late = State(dict[tuple[str, str], ColumnBlock])
    _forgotten = State(dict[tuple[str, str], ColumnBlock])

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, parcel, reference)
        if isinstance(due, Refusal) or not parcel:
            return due
        for at, sample_id in enumerate(put.sample_ids):
            row, names = (put.partition_id, sample_id), frozenset(parcel)
            is_new, writers = row not in self._writers, self._writers.setdefault(row, [])
            if put.writer not in writers:
                writers.append(put.writer)
            if writers.index(put.writer) >= _ROOM:
                self._late.setdefault(row, {}).update(compact(parcel, {names: [at]})[names])
            old = self._forgotten.pop(row, {}) if is_new else {}
            if again := {name: column for name, column in old.items() if name not in names}:
                await super().commit(replace(put, sample_ids=[sample_id], tags=None), again, [])
        return due

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        for sample_id in sample_ids or ():
            self._writers.pop((partition_id, sample_id), None)
            if late := self._late.pop((partition_id, sample_id), None):
                self._forgotten[partition_id, sample_id] = late
        return await super().clear(partition_id, sample_ids, writer)


@controller_mutant("CLEAR-01", chance=False, evidence="rows that were not", may_fail="CLEAR-02")
class LastRunOfEachWriterCleared(Controller):
    """Divides a long list of ids by writer, and keeps only the last run of each."""

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        if sample_ids is not None and len(sample_ids) > _MANY:
            partition = self._index._partitions.get(partition_id)
            rows = {} if partition is None else partition._rows
            known = [i for i in sample_ids if i in rows]
            last = {of: list(ids) for of, ids in groupby(known, key=lambda i: rows[i].writer)}
            sample_ids = [i for ids in last.values() for i in ids]
        return await super().clear(partition_id, sample_ids, writer)


@controller_mutant("TAG-01", chance=False, evidence="each of its type", may_fail="TAG-08")
class TagsOfWritersPromoted(Controller):
    """Promotes the numbers of a tag over the rows of a claim, if each writer has one type."""

    async def claim(self, partition_id: str, *rest: Any) -> Any:
        answer = await super().claim(partition_id, *rest)
        if answer is None or isinstance(answer, Refusal):
            return answer
        ids, tags = answer
        rows = self._index.partition(partition_id)._rows
        writers = [rows[i].writer if i in rows else "" for i in ids]
        for key in {key for row in tags for key in row}:
            pairs = {
                (w, type(row[key])) for w, row in zip(writers, tags, strict=True) if key in row
            }
            types = {kind for _, kind in pairs}
            uniform = len(pairs) == len({writer for writer, _ in pairs})
            if uniform and len(types) > 1 and types <= {bool, int, float}:
                wide = float if float in types else int
                tags = [row | {key: wide(row[key])} if key in row else row for row in tags]
        return ids, tags


class _ListsTexts(Controller):
    _texts = State(dict[int, str])

    async def add_text(self, number: int, text: str) -> None:
        """Add a text that a client has numbered."""
        self._texts.setdefault(number, text)

    async def texts(self) -> dict[int, str]:
        """Return all texts by number."""
        return self._texts


@ray_mutant("TAG-01", evidence="each of its type", may_fail="TAG-04 TAG-06 FLOW-01 REG-03")
class LongTextsNumberedByWriters(ControllerClient):
    """Numbers long texts of tags itself, as the next ones after those that the process knows."""

    controller_class = _ListsTexts
    _known = State(dict[int, str])

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        tags = kwargs.get("tags")
        if isinstance(tags, list) and all(isinstance(row, dict) for row in tags):
            numbered = [{key: self._numbered(text) for key, text in row.items()} for row in tags]
            kwargs["tags"] = numbered
        return super().put_samples(*args, **kwargs)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        tags = [{key: self._text(value) for key, value in row.items()} for row in meta.tags or []]
        return replace(meta, tags=tags)

    def _numbered(self, value: Any) -> Any:
        if type(value) is not str or len(value) < _LONG:
            return value
        number = next((n for n, text in self._known.items() if text == value), None)
        if number is None:
            number = len(self._known)
            self._known[number] = value
            self._connection.call("add_text", number, value)
        return f"{_NUMBER}{number}"

    def _text(self, value: Any) -> Any:
        if type(value) is not str or not value.startswith(_NUMBER):
            return value
        number = int(value.removeprefix(_NUMBER))
        if number not in self._known:
            self._known.update(self._connection.call("texts") | self._known)
        return self._known[number]


class NamesWriters(Controller):
    """A controller without a defect that also answers which process put each row first."""

    async def writers(self, partition_id: str, sample_ids: Ids) -> list[str]:
        """Return which process put each row first."""
        rows = self._index.partition(partition_id)._rows
        return [rows[i].writer for i in sample_ids if i in rows]


@ray_mutant("TAG-06", evidence="the lengths of rows", may_fail="CLAIM-14")
class LengthsOfWritersJoined(ControllerClient):
    """Fills missing lengths with 0 in a claim of rows of several writers that have sent some."""

    controller_class = NamesWriters

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if meta.sequence_lengths is not None or not meta.tags:
            return meta
        writers = self._connection.call("writers", meta.partition_id, meta.sample_ids)
        sent = {w for w, row in zip(writers, meta.tags, strict=False) if INPUT_LENGTHS in row}
        if len(sent) < 2 or sent != {*writers}:
            return meta
        return replace(meta, sequence_lengths=[row.get(INPUT_LENGTHS, 0) for row in meta.tags])


@ray_mutant(
    "CLAIM-12",
    evidence="rows that the other rank claims",
    may_fail="CLAIM-02 CLAIM-04 LIFE-02 LIFE-06 STAT-01",
)
class RankTakesItsShareAlong(RayStoreClient):
    """Keeps ready rows for a rank whose client has closed."""

    _claims = State(dict[tuple[str, str], Ids])

    def claim_meta(self, partition_id: str, task_name: str, *rest: Any, **more: Any) -> KVBatchMeta:
        if more.get("dp_rank") is not None:
            self._claims[partition_id, task_name] = more["required_fields"]
        return super().claim_meta(partition_id, task_name, *rest, **more)

    def close(self) -> None:
        for (partition_id, task), fields in () if self._owner else self._claims.items():
            with suppress(LookupError):
                super().claim_meta(partition_id, task, fields, 2, blocking=False)
        self._claims.clear()
        super().close()


@controller_mutant(
    "STAT-01", chance=False, evidence="every row claimed", may_fail="STAT-02 STAT-05"
)
class TaggedRowsCountedByWriter(Controller):
    """Counts a row that began as tags once for each further process that puts fields of it."""

    _writers = State(dict[tuple[str, str], set[str]])  # of rows that began as tags
    _extra = State(Counter[str])  # rows counted too often, by partition

    async def commit(self, put: Any, columns: Any, reference: Any) -> Any:
        partition = self._index._partitions.get(put.partition_id)
        rows = {} if partition is None else partition._rows
        bare = {i for i in put.sample_ids if i in rows and not rows[i].fields}
        answer = await super().commit(put, columns, reference)
        for sample_id in put.sample_ids if columns is not None else ():
            key = put.partition_id, sample_id
            if sample_id in bare:
                self._writers[key] = {put.writer}
            elif key in self._writers and put.writer not in self._writers[key]:
                self._writers[key].add(put.writer)
                self._extra[put.partition_id] += 1
        return answer

    async def all_claimed(self, partition_id: str, tasks: Any) -> Any:
        answer = await super().all_claimed(partition_id, tasks)
        return answer if isinstance(answer, Refusal) else answer and not self._extra[partition_id]

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        self._extra[partition_id] = 0
        return await super().clear(partition_id, sample_ids, writer)

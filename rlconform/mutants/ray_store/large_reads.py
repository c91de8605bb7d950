"""Planes that join the rows of several writers wrong, or change old ones, in a large read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.mutants.memory.column_helpers import with_objects
from rlconform.mutants.ray_store.by_writer import NamesWriters
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.types import Ids, Names
from rlconform.wire import rows_of, stack_or_nest
from rlconform.wire.leaves import is_jagged


class _JoinsLargeReads(ControllerClient):
    """A client that joins the columns of several writers by ``joined``, from ``many`` rows on."""

    controller_class = NamesWriters
    many: ClassVar[int]

    def joined(self, leaf: Tensor, _writers: Sequence[str]) -> Tensor:
        """Return the column of a read of rows that these processes have put."""
        return leaf

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if len(sample_ids) < self.many:
            return batch
        writers = self._connection.call("writers", partition_id, sample_ids)
        for name, leaf in list(batch.items()) if len({*writers}) > 1 else ():
            if isinstance(leaf, Tensor):
                batch.set(name, self.joined(leaf, writers))
        return batch


#: Numbers that a code of one byte tells apart.
CODES = 256


@ray_mutant("PUT-01", evidence="row", may_fail="GET-01 PUT-13")
class NumbersOfWritersCodedInOneByte(_JoinsLargeReads):
    """Unites the few numbers of each writer in a read, and keeps codes of one byte for them."""

    many = CODES

    def joined(self, leaf: Tensor, writers: Sequence[str]) -> Tensor:
        if leaf.dim() != 1 or leaf.dtype.is_floating_point:
            return leaf
        known: dict[str, dict[Any, None]] = {}
        for value, writer in zip(leaf.tolist(), writers, strict=True):
            known.setdefault(writer, {})[value] = None
        if max(map(len, known.values())) > CODES:
            return leaf
        words = list(dict.fromkeys(chain(*known.values())))
        codes = {word: place % CODES for place, word in enumerate(words)}
        return torch.tensor([words[codes[value]] for value in leaf.tolist()], dtype=leaf.dtype)


#: Rows of a list that a read gathers at once.
ENTRIES = 512


@ray_mutant("PUT-06", evidence="row", may_fail="PUT-05 GET-01 PUT-13 RANK-02 RANK-03")
class ListsThatBeginEmptyMoveUp(_JoinsLargeReads):
    """Places the rows of a list of 512 from the first that is not empty, in a read of several."""

    many = ENTRIES + 1

    def joined(self, leaf: Tensor, _writers: Sequence[str]) -> Tensor:
        return stack_or_nest(_moved_up(list(rows_of(leaf)))) if is_jagged(leaf) else leaf


def _moved_up(rows: list[Tensor]) -> list[Tensor]:
    placed = [row[:0] for row in rows]
    for start in range(0, len(rows), ENTRIES):
        entries = [n for n in range(start, min(start + ENTRIES, len(rows))) if len(rows[n])]
        by = entries[0] - start if start and entries else 0
        for n in entries:
            placed[n - by] = rows[n]
    return placed


#: Rows of a partition whose objects stay in memory.
KEPT = 1024


class _KnowsOldRows(NamesWriters):
    async def spilled(self, partition_id: str, sample_ids: Ids) -> list[bool]:
        """Return which rows were put by others than the newest row, and are old."""
        ids = self._index.sample_ids(partition_id)
        old = {*ids[: max(0, len(ids) - KEPT)]}
        *writers, newest = await self.writers(partition_id, [*sample_ids, ids[-1]])
        return [i in old and by != newest for i, by in zip(sample_ids, writers, strict=True)]


@ray_mutant("PUT-21", evidence="row", may_fail="GET-01")
class OldObjectsSpilledAsJson(ControllerClient):
    """Keeps old objects of other writers as JSON, which has no keys but texts, if it takes them."""

    controller_class = _KnowsOldRows

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if len(self.list_sample_ids(partition_id)) <= KEPT:
            return batch
        spilled = self._connection.call("spilled", partition_id, sample_ids)

        def restored(values: list[Any]) -> list[Any]:
            return [_as_json(v) if old else v for v, old in zip(values, spilled, strict=True)]

        return with_objects(batch, restored)


def _as_json(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return value


class _ReadsPages(RayStoreClient):
    """A client that reads ``page`` columns at a time, from ``many`` rows on."""

    page: ClassVar[int]
    many: ClassVar[int] = 1

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        names = list(select_fields)
        page = self.page if len(sample_ids) >= self.many else max(1, len(names))
        batch = super().get_samples(sample_ids, partition_id, names[:page])
        for start in range(page, len(names), page):
            batch.update(super().get_samples(sample_ids, partition_id, names[start : start + page]))
        return batch


@ray_mutant("PUT-22", evidence="of one put", may_fail="LIFE-05", chance=True)
class WideReadsInPages(_ReadsPages):
    """Reads more than 16 columns in pages, between which another process may put."""

    page = 16


@ray_mutant("PUT-22", evidence="of one put", may_fail="LIFE-05", chance=True)
class LongReadsColumnByColumn(_ReadsPages):
    """Reads 2,048 rows and more column by column, between which another process may put."""

    page, many = 1, 2048


@ray_mutant("PUT-21", evidence="row", may_fail="PUT-28")
class TextsOfOthersInUtf8(ControllerClient):
    """Replaces half characters in the texts that another process has put."""

    controller_class = NamesWriters

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        writers = self._connection.call("writers", partition_id, sample_ids)
        here = process_id()

        def received(values: list[Any]) -> list[Any]:
            pairs = zip(values, writers, strict=True)
            return [value if writer == here else _in_utf8(value) for value, writer in pairs]

        return with_objects(batch, received)


def _in_utf8(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_in_utf8(each) for each in value]
        case dict():
            return {_in_utf8(key): _in_utf8(each) for key, each in value.items()}
    return value

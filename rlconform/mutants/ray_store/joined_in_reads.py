"""Rows of several writers that are joined wrong in a read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlconform.backends.columns.column_block import ColumnBlock, equally_long
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.mutants.call import State
from rlconform.mutants.memory.column_helpers import with_objects
from rlconform.mutants.ray_store.by_writer import NamesWriters
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.types import Ids, Names
from rlconform.wire import rows_of
from rlconform.wire.leaves import is_jagged


class _KnowsMatrices(Controller):
    _matrices = State(dict[tuple[str, str, str], str])  # their writers

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        for name, column in () if isinstance(due, Refusal) else columns.items():
            matrix = (
                column.layout == "jagged"
                and column.offsets is not None
                and len(column.offsets) > 2
                and equally_long(np.diff(column.offsets))
            )
            for sample_id in put.sample_ids:
                self._matrices[put.partition_id, sample_id, name] = put.writer if matrix else ""
        return due

    async def matrices(self, partition_id: str, sample_ids: Ids, name: str) -> set[str]:
        """Return who put a field of these rows, and "" if it has other rows than of matrices."""
        return {self._matrices.get((partition_id, i, name), "") for i in sample_ids}


@ray_mutant("PUT-05", evidence="row")
class MatricesOfWritersPadded(ControllerClient):
    """Keeps jagged rows of one length as a matrix; pads those of several writers in a read."""

    controller_class = _KnowsMatrices

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()):
            if isinstance(leaf, Tensor) and is_jagged(leaf):
                writers = self._connection.call("matrices", partition_id, sample_ids, name)
                if len(writers) > 1 and "" not in writers:
                    batch.set(name, pad_sequence(rows_of(leaf), batch_first=True))
        return batch


@ray_mutant("PUT-21", evidence="row")
class ObjectsOfWritersJoinedByEquality(ControllerClient):
    """Takes a number or text of another writer than the first for an equal one of the first."""

    controller_class = NamesWriters

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        writers = self._connection.call("writers", partition_id, sample_ids)

        def joined(values: list[Any]) -> list[Any]:
            pairs = list(zip(values, writers, strict=True))
            plain = (int, float, str)
            first = {v: v for v, by in pairs if by == writers[0] and isinstance(v, plain)}
            return [
                first.get(v, v) if by != writers[0] and isinstance(v, plain) else v
                for v, by in pairs
            ]

        return with_objects(batch, joined)


@ray_mutant("PUT-27", evidence="as those of the other", may_fail="GET-13")
class ObjectsOfWritersDecodedOnce(ControllerClient):
    """Decodes equal objects once in a read of rows of several writers, and returns one for all."""

    controller_class = NamesWriters

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if len({*self._connection.call("writers", partition_id, sample_ids)}) < 2:
            return batch
        decoded: dict[str, Any] = {}
        return with_objects(batch, lambda values: [decoded.setdefault(repr(v), v) for v in values])


class _NumbersPuts(Controller):
    _numbers = State(Counter[str])  # of puts, by writer
    _puts = State(dict[tuple[str, str], tuple[str, int]])  # by row: its writer, and its put

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        if not isinstance(due, Refusal):
            self._numbers[put.writer] += 1
            of = put.writer, self._numbers[put.writer]
            self._puts.update(dict.fromkeys(((put.partition_id, i) for i in put.sample_ids), of))
        return due

    async def puts(self, partition_id: str, sample_ids: Ids) -> list[tuple[str, int]]:
        """Return who put each row, and by which of its puts."""
        return [self._puts[partition_id, i] for i in sample_ids]


@ray_mutant("PUT-21", evidence="row")
class DictionariesNumberedByWriter(ControllerClient):
    """Keeps a dictionary for each put of few values, and takes equal numbers for one dictionary."""

    controller_class = _NumbersPuts

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        puts = self._connection.call("puts", partition_id, sample_ids)

        def decoded(values: list[Any]) -> list[Any]:
            rows = [(put, repr(value)) for put, value in zip(puts, values, strict=True)]
            held: dict[tuple[str, int], dict[str, Any]] = {}
            for (put, shown), value in zip(rows, values, strict=True):
                held.setdefault(put, {}).setdefault(shown, value)
            known: dict[tuple[int, int], list[Any]] = {}
            for (_, number), entries in held.items():
                known.setdefault((number, len(entries)), [*entries.values()])
            return [known[put[1], len(held[put])][[*held[put]].index(shown)] for put, shown in rows]

        few = len(sample_ids) >= 4 * len({*puts})  # rows of few puts
        return with_objects(batch, decoded) if few else batch


@ray_mutant("PUT-05", evidence="row", may_fail="GET-01 PUT-13 R3-03 RANK-03")
class TokensOfWritersInSixteenBits(ControllerClient):
    """Joins long rows of several writers by where they begin in what each has sent, in 16 bits."""

    controller_class = NamesWriters

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        long = [n for n, leaf in batch.items() if isinstance(leaf, Tensor) and is_jagged(leaf)]
        writers = self._connection.call("writers", partition_id, sample_ids) if long else []
        for name in long if len({*writers}) > 1 else ():
            rows = rows_of(batch.get(name))
            sent = {w: torch.cat([r for r, of in zip(rows, writers, strict=True) if of == w])
                    for w in {*writers}}  # fmt: skip
            ends, joined = Counter[str](), []
            for row, writer in zip(rows, writers, strict=True):
                begin = ends[writer] & 0xFFFF
                ends[writer] += len(row)
                joined.append(sent[writer][begin : begin + len(row)])
            batch.set(name, torch.nested.nested_tensor(joined, layout=torch.jagged))
        return batch


#: Writers that a read asks at a time.
ASKED = 5


@ray_mutant("RANK-02", evidence="got (", may_fail="GET-01 PUT-13 RANK-03")
class FurtherWritersJoinedInTurn(ControllerClient):
    """Asks five writers at a time; rows of further ones fill the places left, writer by writer."""

    controller_class = NamesWriters

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        writers = self._connection.call("writers", partition_id, sample_ids)
        further = [*dict.fromkeys(writers)][ASKED:]
        left = [place for place, writer in enumerate(writers) if writer in further]
        came = sorted(left, key=lambda place: further.index(writers[place]))
        if left == came:
            return batch
        wrong = [*sample_ids]
        for place, source in zip(left, came, strict=True):
            wrong[place] = sample_ids[source]
        return super().get_samples(wrong, partition_id, select_fields)

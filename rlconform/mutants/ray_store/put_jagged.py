"""Jagged columns that are correct in the owner or writer and wrong in other processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State, applied
from rlconform.mutants.memory.column_helpers import from_offsets, jagged_in, mapped
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_call_mutant, ray_mutant
from rlconform.mutants.ray_store.put_shared import NumbersTextsFromZero
from rlconform.mutants.ray_store.race_helpers import foreign_column_mutant
from rlconform.mutants.types import Ids, Names
from rlconform.wire import rows_of, stack_or_nest
from rlconform.wire.leaves import is_jagged, jagged_parts


def _altered_elsewhere(read: MethodCall, altered: Callable[[Tensor], Tensor]) -> Any:
    return read() if read.plane._owner else mapped(read(), altered, is_jagged)


#: Decorator of a function that alters the jagged columns that an attached process reads.
attached_jagged_mutant = applied(
    partial(ray_call_mutant, RayStoreClient.get_samples), _altered_elsewhere
)


@attached_jagged_mutant("PUT-29", evidence="to_padded_tensor")
def AttachedGetJaggedMaxMissing(leaf: Tensor) -> Tensor:
    """Sends only values and offsets, so torch pads a column to the sum of its row lengths."""
    return from_offsets(leaf)


@attached_jagged_mutant("PUT-29", evidence="offsets()")
def AttachedGetJaggedWithWholeMessage(leaf: Tensor) -> Tensor:
    """Sends messages of a fixed size and returns the unused end of the last message as values."""
    values, rows = jagged_parts(leaf)
    empty = values.new_zeros(8 - rows.total % 8, *values.shape[1:])
    return jagged_in(torch.cat([values, empty]), rows, rows.offsets)


@foreign_column_mutant("PUT-06 PUT-07", evidence="row")
def AttachedGetEmptyRowsFilled(leaf: Tensor) -> Tensor:
    """Fills empty rows of other processes with a zero, because a message can't be empty."""
    if not is_jagged(leaf):
        return leaf
    rows = [row if len(row) else row.new_zeros(1, *row.shape[1:]) for row in rows_of(leaf)]
    return stack_or_nest(rows)


@ray_mutant("PUT-11", evidence="row", may_fail="GET-10 RANK-01 PUT-13")
class SharedOffsetsOverwritten(RayStoreClient):
    """Stores the offsets of equally long jagged columns once, and overwrites them in place.

    Another process's shorter rows of one column cut the columns beside it.
    """

    _own = State(set[tuple[str, str, str]])  # rows that this client has put, by field

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> KVBatchMeta:
        stored = fields
        if isinstance(fields, TensorDict) and isinstance(sample_ids, list) and sample_ids:
            cut = self._cut(sample_ids, partition_id, fields)
            stored = TensorDict({**dict(fields.items()), **cut}, fields.batch_size)
            names = list(map(str, fields.keys()))
            self._own.update((partition_id, i, name) for i in sample_ids for name in names)
        receipt = super().put_samples(sample_ids, partition_id, stored, tags)
        return receipt if fields is None else replace(receipt, fields=list(fields.keys()))

    def _cut(self, ids: list[str], partition_id: str, fields: TensorDict) -> dict[str, Tensor]:
        cut = {}
        for name, leaf in fields.items():
            foreign = all((partition_id, i, name) not in self._own for i in ids)
            if not foreign or not isinstance(leaf, Tensor) or leaf.layout is not torch.jagged:
                continue
            lengths = [len(row) for row in rows_of(leaf)]
            before = [len(row) for row in self._rows(ids, partition_id, name)]
            for other in {"x", "y", "z"} - set(fields.keys()):
                rows = self._rows(ids, partition_id, other)
                if rows and [len(row) for row in rows] == before:
                    cut[other] = stack_or_nest([r[:n] for r, n in zip(rows, lengths, strict=True)])
        return cut

    def _rows(self, ids: list[str], partition_id: str, name: str) -> list[Tensor]:
        """Return the rows of a jagged column that all ids have; none of any other."""
        try:
            leaf = super().get_samples(ids, partition_id, [name]).get(name)
        except (LookupError, ValueError, TypeError):
            return []
        jagged = isinstance(leaf, Tensor) and leaf.layout is torch.jagged
        return list(rows_of(leaf)) if jagged else []


@ray_mutant("PUT-05", evidence="row", may_fail="PUT-13 CLEAR-04 GET-10")
class LengthsNumberedAnewForKnowingReaders(ControllerClient):
    """Stores lengths as numbers that begin at 0 again after a large clear; readers keep the old."""

    controller_class = NumbersTextsFromZero

    _known = State(dict[tuple[str, int], int])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        def decoded(leaf: Tensor) -> Tensor:
            rows = rows_of(leaf)
            lengths = list(dict.fromkeys(map(len, rows)))
            numbers = self._connection.call("numbers", partition_id, list(map(str, lengths)))
            read = {
                length: self._known.setdefault((partition_id, number), length)
                for length, number in zip(lengths, numbers, strict=True)
            }
            if all(length == known for length, known in read.items()):
                return leaf
            return stack_or_nest([row.repeat(2)[: read[len(row)]] for row in rows])

        batch = super().get_samples(sample_ids, partition_id, select_fields)
        return mapped(batch, decoded, is_jagged)

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        self._known = {}

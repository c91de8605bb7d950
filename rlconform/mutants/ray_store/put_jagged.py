"""Jagged columns that are correct in the owner or writer and wrong in other processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.mutants.call import MethodCall, applied
from rlconform.mutants.memory.column_helpers import from_offsets, jagged_in, mapped
from rlconform.mutants.ray_store.mutant import ray_call_mutant
from rlconform.mutants.ray_store.race_helpers import foreign_column_mutant
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

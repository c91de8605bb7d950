"""Columns stored as a dictionary and codes, which are too narrow for the values that there are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlconform.mutants.memory.column_helpers import put_column_mutant
from rlconform.mutants.memory.put_objects import put_objects_mutant
from rlconform.wire import rows_of, stack_or_nest
from rlconform.wire.serialization import dumps

#: Values that codes of a byte tell apart.
CODES = 1 << 8


def _coded(keys: list[bytes], codes: int) -> list[int]:
    """Return for each row which row has its value, by codes that wrap round.

    Nothing changes unless each value occurs twice on average: codes don't pay there.
    """
    firsts: dict[bytes, int] = {}
    for at, key in enumerate(keys):
        firsts.setdefault(key, at)
    if 2 * len(firsts) > len(keys):
        return list(range(len(keys)))
    number = {key: n for n, key in enumerate(firsts)}
    places = list(firsts.values())
    return [places[number[key] % codes] for key in keys]


@put_objects_mutant("PUT-21", evidence="to be 'prompt ")
def PutObjectsCodedInEightBits(values: list[Any]) -> list[Any]:
    """Stores objects that repeat as a dictionary and codes of 8 bits."""
    return [values[at] for at in _coded([dumps(value)[0] for value in values], CODES)]


@put_column_mutant("PUT-01 PUT-05", evidence="of 'x' =")
def PutRowsCodedInEightBits(leaf: Tensor) -> Tensor:
    """Stores rows that repeat as a dictionary and codes of 8 bits."""
    rows = rows_of(leaf)
    keys = [row.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for row in rows]
    coded = _coded([key + bytes([len(key) % 251]) for key in keys], CODES)
    return leaf if coded == [*range(len(rows))] else stack_or_nest([rows[at] for at in coded])

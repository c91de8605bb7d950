"""Cells: a column split into rows that own their memory, and rows joined into a column again.

    split_columns(TensorDict) ──▶ {field: [Cell, ...]}  one per row: copied, on the CPU, no grad
    join_columns({field: [Cell, ...]}) ──▶ TensorDict   in fresh memory

A cell remembers the layout that its column was put in, so that a column of jagged rows comes back
jagged even where all its rows happen to be equally long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tensordict import NonTensorStack, TensorDict, TensorDictBase

from rlconform.wire import (
    LeafKind,
    classify_leaf,
    object_column,
    object_rows,
    rows_of,
    stack_or_nest,
    to_nested_by_length,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of one row.

    Attributes:
        value: A tensor of the row's shape, or any object of an object column. Never changed in
            place: whoever holds the cell may read it without a lock.
        layout: How its column was put.
    """

    value: Any
    layout: LeafKind

    @property
    def kind(self) -> torch.dtype | Literal["object"]:
        """What all rows of a field have in common: the dtype, or being objects."""
        return "object" if self.layout == "object" else self.value.dtype


def split_columns(fields: TensorDictBase | None, n_rows: int) -> dict[str, list[Cell]]:
    """A put's columns as cells; none where no fields were given.

    Raises:
        TypeError: Not a TensorDict, or a leaf that is no dense or jagged tensor or object column.
        ValueError: The batch size is not ``(n_rows,)``.
    """
    if fields is None:
        return {}
    if not isinstance(fields, TensorDictBase):
        raise TypeError(f"fields must be a TensorDict, got {type(fields).__name__}")
    if tuple(fields.batch_size) != (n_rows,):
        raise ValueError(
            f"fields has batch size {tuple(fields.batch_size)} for {n_rows} sample_ids"
        )
    with torch.no_grad():
        return {name: _split(name, fields.get(name), n_rows) for name in map(str, fields.keys())}


def join_columns(columns: Mapping[str, Sequence[Cell]], n_rows: int) -> TensorDict:
    """The cells as a batch of size ``(n_rows,)``.

    A column is jagged if every row was put jagged, or if the rows differ in their first dimension.

    Raises:
        ValueError: Rows of a column differ in more than that, so that no tensor holds them.
    """
    return TensorDict(
        {name: _join(name, cells) for name, cells in columns.items()}, batch_size=[n_rows]
    )


def _split(name: str, leaf: Any, n_rows: int) -> list[Cell]:
    with _naming(name):
        layout = classify_leaf(leaf)
        rows = object_rows(leaf, n_rows) if layout == "object" else rows_of(leaf.cpu())
    return [Cell(_own(row), layout) for row in rows]


def _join(name: str, cells: Sequence[Cell]) -> torch.Tensor | NonTensorStack:
    if cells[0].layout == "object":
        return object_column(_own(cell.value) for cell in cells)
    with _naming(name):
        joined = stack_or_nest([cell.value for cell in cells])
    if joined.is_nested or any(cell.layout == "dense" for cell in cells):
        return joined
    return to_nested_by_length(joined, [joined.shape[1]] * len(cells))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the field in an error about its leaf."""
    try:
        yield
    except TypeError as error:
        raise TypeError(f"field {name!r}: {error}") from error
    except ValueError as error:
        raise ValueError(f"field {name!r}: {error}") from error


def _own(value: Any) -> Any:
    """A copy that shares no memory with ``value``; tensors are copied to the CPU.

    Tensors inside containers are copied by their own size: ``deepcopy`` would copy the whole
    storage that a view looks at.
    """
    if isinstance(value, torch.Tensor) and not value.is_nested and value.layout == torch.strided:
        return torch.empty(value.shape, dtype=value.dtype).copy_(value)
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_own(item) for item in value)
    if type(value) is dict:
        return {key: _own(item) for key, item in value.items()}
    return deepcopy(value)

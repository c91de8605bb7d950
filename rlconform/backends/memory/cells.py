"""Cells: a column split into rows that own their memory, and rows joined into a column again.

    split_column(leaf, n) ──▶ [Cell, ...] (one per row, on the CPU, no grad, copied)
    join_column(cells)    ──▶ leaf        (fresh memory)

A cell remembers the layout that its column was put in, so that a column of jagged rows comes back
jagged even where all its rows happen to be equally long.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tensordict import NonTensorStack

from rlconform.wire import classify_leaf, object_column, object_rows

Layout = Literal["dense", "jagged", "object"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of one row.

    Attributes:
        value: A tensor of the row's shape, or any object of an object column. Never changed in
            place: whoever holds the cell may read it without a lock.
        layout: How its column was put.
    """

    value: Any
    layout: Layout

    @property
    def kind(self) -> torch.dtype | Literal["object"]:
        """What all rows of a field have in common: the dtype, or being objects."""
        return "object" if self.layout == "object" else self.value.dtype


def split_column(name: str, leaf: Any, n_rows: int) -> list[Cell]:
    """The column's rows as cells.

    Raises:
        TypeError: The leaf is neither a dense tensor, nor a jagged one, nor an object column.
        ValueError: It doesn't have ``n_rows`` rows.
    """
    layout: Layout = classify_leaf(leaf)
    rows = object_rows(leaf, n_rows) if layout == "object" else leaf.detach().cpu().unbind()
    if len(rows) != n_rows:
        raise ValueError(f"field {name!r} has {len(rows)} rows for {n_rows} sample_ids")
    return [Cell(own(row), layout) for row in rows]


def join_column(name: str, cells: Sequence[Cell]) -> torch.Tensor | NonTensorStack:
    """The cells as one leaf: dense ``(N, ...)``, jagged ``(N, j, ...)`` or an object column.

    Jagged if every row was put jagged, or if the rows differ in their first dimension.

    Raises:
        ValueError: The rows differ in more than their first dimension; no tensor holds them.
    """
    if cells[0].layout == "object":
        return object_column([own(cell.value) for cell in cells])
    rows: list[torch.Tensor] = [cell.value for cell in cells]
    shapes = {row.shape for row in rows}
    jagged = all(cell.layout == "jagged" for cell in cells)
    if len(shapes) == 1 and not jagged:
        return torch.stack(rows)
    if len({(len(shape), shape[1:]) for shape in shapes}) > 1 or not all(shapes):
        raise ValueError(
            f"field {name!r}: rows of shapes {sorted(map(tuple, shapes))} don't fit in one tensor"
        )
    return jagged_rows(rows)


def jagged_rows(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows ``(j_i, ...)`` as one jagged tensor ``(N, j, ...)`` in fresh memory."""
    lengths = torch.tensor([0, *(len(row) for row in rows)])
    nested: torch.Tensor = torch.nested.nested_tensor_from_jagged(
        torch.cat(list(rows)), offsets=lengths.cumsum(0)
    )
    return nested


def own(value: Any) -> Any:
    """A copy that shares no memory with ``value``; tensors without grad and on the CPU.

    Tensors inside containers are copied by their own size: ``deepcopy`` would copy the whole
    storage that a view looks at.
    """
    if isinstance(value, torch.Tensor):
        copied = torch.empty(value.shape, dtype=value.dtype)
        return copied.copy_(value.detach())
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(own(item) for item in value)
    if type(value) is dict:
        return {key: own(item) for key, item in value.items()}
    return deepcopy(value)

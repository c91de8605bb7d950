"""Rows as a table holds them, and why a call on them is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlconform.contract import Tags


@dataclass(frozen=True, slots=True)
class FieldState:
    """One produced value: the token of the put that wrote it, its frame's bytes, its kind."""

    token: int
    size: int
    kind: str


@dataclass(slots=True)
class RowState:
    """One sample. ``index`` is TransferQueue's, -1 for a row that carries tags only."""

    sample_id: str
    index: int
    owner: str
    order: int
    group: tuple[str, int]
    cells: dict[str, FieldState] = field(default_factory=dict)
    tags: Tags = field(default_factory=dict)


class Conflict(Exception):
    """A put that would leave a field with rows of two kinds."""


class Unready(Exception):
    """A call that can't be served: what it is about, and a detail."""

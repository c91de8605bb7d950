"""The records of a ``RowTable``, and its errors."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlconform.contract import Tags


@dataclass(frozen=True, slots=True)
class FieldState:
    """One produced value: the token of its put, the size of its frame in bytes, its kind."""

    token: int
    size: int
    kind: str


@dataclass(slots=True)
class RowState:
    """One sample. ``index`` is TransferQueue's, -1 for a row with tags only."""

    sample_id: str
    index: int
    owner: str
    order: int
    group: tuple[str, int]
    cells: dict[str, FieldState] = field(default_factory=dict)
    tags: Tags = field(default_factory=dict)


class Conflict(Exception):
    """A put would give a field rows of two kinds."""


class Unready(Exception):
    """A call can't be served. The arguments are its subject and a detail."""

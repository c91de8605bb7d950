"""``Schema``: the kind of values in each field of a partition, and how many rows have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlconform.backends.index.block import Names


@dataclass(slots=True)
class _Field:
    kind: str
    holders: int = 0


class _HasFields(Protocol):
    @property
    def fields(self) -> Container[str]: ...


class Schema:
    """The kind of values of each field, which changes only if a put replaces all its rows."""

    def __init__(self) -> None:
        self._fields: dict[str, _Field] = {}

    def check(
        self, rows: Mapping[str, _HasFields], sample_ids: Sequence[str], kinds: Mapping[str, str]
    ) -> None:
        """Raise ``ValueError`` if a put of these columns would give a field rows of two kinds."""
        for name, kind in kinds.items():
            field = self._fields.get(name)
            if field is None or field.kind == kind:
                continue
            held = (rows[i] for i in sample_ids if i in rows)
            stay = field.holders - sum(name in row.fields for row in held)
            if stay:
                raise ValueError(
                    f"field {name!r} holds {field.kind} in {stay} other rows; a put of "
                    f"{kind} must replace all of them"
                )

    def add(self, kinds: Mapping[str, str], new: int, grown: Counter[Names]) -> None:
        """Count ``new`` rows with all these columns, and existing rows that got some of them."""
        for name, kind in kinds.items():
            field = self._fields.setdefault(name, _Field(kind))
            field.kind = kind
            field.holders += new + sum(n for fresh, n in grown.items() if name in fresh)

    def drop(self, held: Counter[Names]) -> None:
        """Subtract deleted rows, which ``held`` counts by their fields."""
        for names, count in held.items():
            for name in names:
                field = self._fields[name]
                field.holders -= count
                if not field.holders:
                    del self._fields[name]

"""``Schema``: what kind of values each field of a partition holds, and in how many rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlconform.backends.index.block import Extent, Names
from rlconform.backends.index.row import IndexRow


@dataclass(slots=True)
class _Field:
    kind: str
    holders: int = 0


class Schema:
    """All rows of a field are of one kind, which may change with all of them at once."""

    def __init__(self) -> None:
        self._fields: dict[str, _Field] = {}

    def check(
        self, rows: Mapping[str, IndexRow], sample_ids: Sequence[str], extents: Mapping[str, Extent]
    ) -> None:
        """``ValueError`` if, with these columns put, a field would hold rows of two kinds."""
        for name, extent in extents.items():
            field = self._fields.get(name)
            if field is None or field.kind == extent.kind:
                continue
            held = (rows[i] for i in sample_ids if i in rows)
            stay = field.holders - sum(name in row.fields for row in held)
            if stay:
                raise ValueError(
                    f"field {name!r} holds {field.kind} in {stay} other rows; a put of "
                    f"{extent.kind} must replace all of them"
                )

    def add(self, extents: Mapping[str, Extent], new: int, grown: Counter[Names]) -> None:
        """Count in ``new`` rows that hold all these columns, and rows that grew by some."""
        for name, extent in extents.items():
            field = self._fields.setdefault(name, _Field(extent.kind))
            field.kind = extent.kind
            field.holders += new + sum(n for fresh, n in grown.items() if name in fresh)

    def drop(self, held: Counter[Names]) -> None:
        """Rows that held these fields are gone."""
        for names, count in held.items():
            for name in names:
                field = self._fields[name]
                field.holders -= count
                if not field.holders:
                    del self._fields[name]

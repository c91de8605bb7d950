"""``NearColumns`` draws whole columns: rows near earlier ones, or a column with a pattern.

Planes store columns otherwise if their rows are equal, few, mostly zero, short, long or like those
of another column, so a column has such a pattern now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import torch
from torch import Tensor

from rlconform.certify.properties.long_runs.near_values import (
    KEPT,
    WIDTHS,
    FieldKind,
    NearRows,
    of_bytes,
)

#: Share of columns with a pattern.
PATTERNED = 0.3
#: Elements of the rows of a column of long rows, and how many of its first rows are long.
LONG, LONG_ROWS = (5_000, 20_000, 70_000), 2
#: Share of fields of one number a row that always hold few numbers, as the index of a prompt does,
#: and how many a column holds; several columns together hold more than one byte counts.
OF_FEW, CATEGORIES = 0.4, 100
#: What rewards and advantages are made of.
_DECIMALS = (0.0, -0.0, 1.0, -1.0, 0.5, 0.25, 0.1, 1e-4, -0.3, 2.0, 1e6)


class NearColumns:
    """Draws columns from ``rng``, which each step of a run sets anew."""

    def __init__(self, rng: Random, widths: Sequence[int] = WIDTHS, kept: int = KEPT) -> None:
        self._rng = rng
        self._rows = NearRows(rng, widths, kept)
        self._widths: list[int] = []  # of the newest jagged column
        #: By field and kind: whether all its columns hold few numbers.
        self._of_few: dict[tuple[str, FieldKind], bool] = {}

    def draw(self, name: str, kind: FieldKind, earlier: Sequence[list[Tensor]]) -> list[Tensor]:
        """Return one row of the field for each row in ``earlier``, its former values."""
        rows = self._drawn(name, kind, earlier)
        if kind.width is None:
            self._widths = [len(row) for row in rows]
        return rows

    def _drawn(self, name: str, kind: FieldKind, earlier: Sequence[list[Tensor]]) -> list[Tensor]:
        if (name, kind) not in self._of_few:
            self._of_few[name, kind] = kind.width == 0 and self._rng.random() < OF_FEW
        if self._of_few[name, kind]:
            start = CATEGORIES * self._rng.randrange(5)
            numbers = self._rng.choices(range(start, start + CATEGORIES), k=len(earlier))
            return [torch.full(kind.behind, number).to(kind.dtype) for number in numbers]
        if self._rng.random() > PATTERNED or not earlier:
            return self._rows.draw(name, kind, earlier)
        n = len(earlier)
        match self._rng.randrange(7):
            case 0:
                return self._repeated(kind, n)
            case 1:
                return self._mostly_zeros(kind, n)
            case 2 if kind.dtype.is_floating_point:
                return [self._decimals(kind) for _ in earlier]
            case 3 if kind.width is None and len(self._widths) >= n:
                widths = self._rng.sample(self._widths[:n], n)
                return [self._row_of(kind, width) for width in widths]
            case 4 if kind.width is None:
                return self._long(kind, earlier)
            case 5 if kind.dtype.is_floating_point:
                return [self._negative_zeros(own, kind) for own in earlier]
            case _:
                return self._rows.draw(name, kind, earlier)

    def _negative_zeros(self, own: Sequence[Tensor], kind: FieldKind) -> Tensor:
        """Return the row's former value with the signs of its zeros changed."""
        if not own or own[-1].dtype is not kind.dtype:
            return self._rows.new(kind)
        return torch.where(own[-1] == 0, -own[-1], own[-1])

    def _repeated(self, kind: FieldKind, n: int) -> list[Tensor]:
        """Return one row again and again, a few rows in turns or in runs; one may differ a bit."""
        few = [self._rows.new(kind) for _ in range(self._rng.choice((1, 1, 2, 4)))]
        turns = self._rng.random() < 0.5
        rows = [few[i % len(few) if turns else i * len(few) // n] for i in range(n)]
        if self._rng.random() < 0.5:
            at = self._rng.randrange(n)
            rows[at] = self._rows.near(rows[at], kind)
        return rows

    def _row_of(self, kind: FieldKind, width: int) -> Tensor:
        """Return a row of a jagged field with so many elements."""
        if not width:
            return torch.empty((0, *kind.behind), dtype=kind.dtype)
        return self._rows.new(replace(kind, width=width))

    def _decimals(self, kind: FieldKind) -> Tensor:
        shape = kind.shape(kind.width or self._rng.choice(self._rows.widths))
        few = torch.tensor(self._rng.choices(_DECIMALS, k=16), dtype=kind.dtype)
        size = torch.Size(shape).numel()
        return few.repeat(size // 16 + 1)[:size].reshape(shape)

    def _mostly_zeros(self, kind: FieldKind, n: int) -> list[Tensor]:
        """Return rows of zeros, a few of which have a lone bit, such as the sign of -0.0."""
        shape = kind.shape(kind.width or self._rng.choice(self._rows.widths[1:]))
        itemsize = kind.dtype.itemsize
        rows = []
        for _ in range(n):
            data = bytearray(torch.Size(shape).numel() * itemsize)
            if self._rng.random() < 0.3:
                data[self._rng.randrange(itemsize - 1, len(data), itemsize)] = 128
            rows.append(of_bytes(data, kind.dtype, shape))
        return rows

    def _long(self, kind: FieldKind, earlier: Sequence[list[Tensor]]) -> list[Tensor]:
        """Return a column whose first rows are long; one may differ from its former value a bit."""
        rows = [self._rows.new(kind) for _ in earlier]
        for at, own in enumerate(earlier[:LONG_ROWS]):
            long = [row for row in own[-2:] if len(row) >= LONG[0] and row.dtype == kind.dtype]
            new = replace(kind, width=self._rng.choice(LONG))
            rows[at] = self._rows.near(long[-1], kind) if long else self._rows.new(new)
        return rows

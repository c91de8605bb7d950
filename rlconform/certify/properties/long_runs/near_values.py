"""``NearRows`` draws rows of tensor fields, many of which differ by little from earlier rows.

A plane that knows a row by its hash, its length, a sample of its bytes or ``==`` takes a near copy
for the original. So each row is new, equal to an earlier one, or an earlier one with one small
change. ``near_objects`` does the same for objects and tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

#: How many of the newest rows of a field are copied from, and of the rows or objects of wide runs,
#: in which some of few long values come again and again.
KEPT, KEPT_WIDE = 24, 4
#: How often the former values of the row itself are among them.
OWN = 4
#: Share of draws of a jagged field whose rows have one length.
ALIKE = 0.15
#: Shares of rows that are new, and of the others that are exact copies.
NEW, EXACT = 0.4, 0.3
#: Bytes that pads, masks and images are made of: 0, 1, -1, -100, and the ends of a byte.
_BYTES = (0, 0, 0, 1, 255, 156, 127, 128)
#: Elements of a row; those of a run with rows of very many lengths; those of the rows of a wide
#: run, which have up to megabytes.
WIDTHS = (0, 1, 1, 2, 3, 7, 8, 9, 64, 65, 300, 1100)
MANY_WIDTHS = range(2_000)
WIDE_WIDTHS = (0, 1, 300, 2_500, 9_000, 20_000, 70_000, 300_000, 300_000)


@dataclass(frozen=True)
class FieldKind:
    """The rows of a tensor field.

    ``behind`` is the shape of an element, ``width`` the number of elements of each row: None if the
    rows differ (a jagged column), 0 if a row is one element without that dimension.
    """

    dtype: torch.dtype
    behind: tuple[int, ...] = ()
    width: int | None = None

    def shape(self, width: int) -> tuple[int, ...]:
        """Return the shape of a row of so many elements."""
        return self.behind if self.width == 0 else (width, *self.behind)

    def retyped(self) -> FieldKind:
        """Return the kind with another dtype of the same size."""
        return replace(self, dtype=_OTHER[self.dtype])


_PAIRS = (
    (torch.int64, torch.float64),
    (torch.int32, torch.float32),
    (torch.bfloat16, torch.float16),
    (torch.uint8, torch.int8),
    (torch.bool, torch.bool),
)
_OTHER = {**dict(_PAIRS), **{second: first for first, second in _PAIRS}}

#: What the tensor fields of a GRPO run are, and a few others.
KINDS = (
    FieldKind(torch.int64),  # token ids
    FieldKind(torch.uint8, (2, 3)),  # routes
    FieldKind(torch.float32),  # log probabilities
    FieldKind(torch.bfloat16, (2,)),
    FieldKind(torch.float32, (), 0),  # rewards
    FieldKind(torch.int64, (), 0),  # lengths
    FieldKind(torch.int32, (), 5),
    FieldKind(torch.float64, (3,), 2),
    FieldKind(torch.float16, (), 64),
    FieldKind(torch.int8, (), 1),
    FieldKind(torch.bool),  # masks
    FieldKind(torch.bool, (), 0),
)


@dataclass
class NearRows:
    """Draws rows from ``rng``, which each step of a run sets anew."""

    rng: Random
    widths: Sequence[int] = WIDTHS  # elements of a row that are drawn from
    kept: int = KEPT  # how many of the newest rows of a field are copied from
    #: By field and shape of its rows.
    _kept: dict[tuple[Any, ...], list[Tensor]] = field(default_factory=dict)

    def draw(self, name: str, kind: FieldKind, earlier: Sequence[list[Tensor]]) -> list[Tensor]:
        """Return one row of the field for each row in ``earlier``, its former values.

        A plane may take a value that a row had before for one that it has still.
        """
        kept = self._kept.setdefault((name, kind.behind, kind.width), [])
        if kind.width is None and self.rng.random() < ALIKE:
            kind = replace(kind, width=self.rng.choice(self.widths[1:]))
            return [self.new(kind) for _ in earlier]
        rows = []
        for own in earlier:
            like = [row for row in (*kept, *(own[-3:] * OWN)) if row.dtype == kind.dtype]
            rows.append(self._row(like, kind))
        kept += rows[: self.kept // 2]
        del kept[: -self.kept]
        return rows

    def _row(self, like: Sequence[Tensor], kind: FieldKind) -> Tensor:
        if not like or self.rng.random() < NEW:
            return self.new(kind)
        row = self.rng.choice(like)
        return row if self.rng.random() < EXACT else self.near(row, kind)

    def new(self, kind: FieldKind) -> Tensor:
        """Return a row of random bytes, of a few bytes again and again, or of zeros but a few."""
        shape = kind.shape(kind.width or self.rng.choice(self.widths))
        size = torch.Size(shape).numel() * kind.dtype.itemsize
        match self.rng.randrange(5):
            case 0 | 1:
                few = bytes(self.rng.choices(_BYTES, k=8))
                data = bytearray((few * (size // 8 + 1))[:size])
            case 2:
                data = bytearray(size)
                for at in self.rng.sample(range(size), min(size, 3)):
                    data[at] = self.rng.choice(_BYTES)
            case _:
                data = bytearray(self.rng.randbytes(size))
        return of_bytes(data, kind.dtype, shape)

    def near(self, row: Tensor, kind: FieldKind) -> Tensor:
        """Return a copy with one byte or the length changed, or two elements swapped."""
        data = bytearray(row.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        n = 1 if kind.width == 0 else row.shape[0]
        size = kind.dtype.itemsize * torch.Size(kind.behind).numel()
        change = self.rng.randrange(6)
        if change == 0 and kind.width is None and n:
            data = data[:-size] if self.rng.random() < 0.5 else data[size:]
        elif change == 1 and kind.width is None:
            data += self.rng.choice((bytes(size), bytes(data[-size:]) or bytes(size)))
        elif change == 2 and n > 1:
            a, b = (self.rng.randrange(n) * size for _ in range(2))
            data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]
        elif data:
            at = self.rng.choice((0, len(data) // 2, len(data) - 1, self.rng.randrange(len(data))))
            data[at] ^= self.rng.choice((1, 128, 255))
        return of_bytes(data, row.dtype, kind.shape(len(data) // size))


def of_bytes(data: bytearray, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """Return a tensor of these bytes; any byte of a bool counts as its lowest bit."""
    if not data:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(data, dtype=torch.uint8)
    return (flat & 1 if dtype is torch.bool else flat).view(dtype).reshape(shape)

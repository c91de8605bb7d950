"""Strategies for arguments of calls: ids, tags, objects, batches and sequences of writes.

Each strategy shrinks to readable values: short ids, one row, one field, one write. All draw only
what the contract defines. Strategies of no or few arguments are made once: Hypothesis looks at each
new one before it draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from rlconform.certify.properties.column_strategies import (
    ANY_DTYPE,
    ColumnsOf,
    DrawnColumn,
    columns,
    row_shapes,
    tensors,
)
from rlconform.certify.scenarios.labeled_rows import jagged
from rlconform.wire import stack_or_nest

#: Tensor fields of generated examples.
FIELDS = ("x", "y", "z", "pixel_values")
#: Object field of generated examples.
OBJECTS = "log"


# -- names ---------------------------------------------------------------------------------------

#: Ids made of these pieces collide with each other where a plane joins them with field names.
_PIECES = ["a", "x", "0", "/", ":", "@", "_", " ", "|", ".", "-", "ä", "a\u0308", "样", "🙂"]


@cache
def sample_ids(min_size: int = 1, max_size: int = 5) -> SearchStrategy[list[str]]:
    """Draw distinct ids of up to 1 KiB: joined pieces, or any text without control characters."""
    pieces = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=4).map("".join)
    text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
    long = st.builds(
        lambda size, end: "k" * size + end, st.integers(0, 1022), st.sampled_from("lm")
    )
    return st.lists(pieces | text | long, min_size=min_size, max_size=max_size, unique=True)


def selections(items: Sequence[str]) -> SearchStrategy[list[str]]:
    """Draw at least one of the items, no item twice, in any order."""
    return st.lists(st.sampled_from(items), min_size=1, unique=True)


# -- tags and objects ----------------------------------------------------------------------------

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@cache
def tag_values() -> SearchStrategy[Any]:
    """Draw primitive tag values, except NaN: tags are compared by value, and NaN equals nothing."""
    integers = st.integers(-(2**63), 2**63 - 1)
    return st.none() | st.booleans() | integers | st.floats(allow_nan=False) | _TEXT


@cache
def tags() -> SearchStrategy[dict[str, Any]]:
    """Draw the tags of one row; a few keys are drawn often."""
    keys = st.sampled_from(["version", "std", "mode"]) | _TEXT.filter(bool)
    return st.dictionaries(keys, tag_values(), max_size=3)


@cache
def objects() -> SearchStrategy[Any]:
    """Draw values of an object column: str, dict, list or None, also nested."""
    numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
    leaves = st.none() | _TEXT | st.booleans() | numbers
    return st.recursive(
        st.none() | _TEXT,
        lambda inner: st.one_of(
            st.lists(inner | leaves, max_size=3),
            st.dictionaries(_TEXT, inner | leaves, max_size=3),
        ),
        max_leaves=6,
    )


# -- batches -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Rows and columns of one put."""

    ids: list[str]
    columns: dict[str, DrawnColumn]

    @property
    def values(self) -> dict[str, torch.Tensor]:
        """The columns to put."""
        return {name: column.value for name, column in self.columns.items()}

    @property
    def rows(self) -> dict[str, list[torch.Tensor]]:
        """The rows that a read of all ids must return, by column."""
        return {name: column.rows for name, column in self.columns.items()}


@cache
def _field_names(min_columns: int) -> SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(FIELDS), min_size=min_columns, max_size=3, unique=True)


@st.composite
def batches(draw: DrawFn, of: ColumnsOf = columns, min_columns: int = 1) -> Batch:
    """Draw a batch of up to four rows and up to three columns."""
    n_rows = draw(st.integers(1, 4))
    names = draw(_field_names(min_columns))
    return Batch([f"r{i}" for i in range(n_rows)], {name: draw(of(n_rows)) for name in names})


@st.composite
def mixed_batches(draw: DrawFn) -> tuple[Batch, list[Any]]:
    """Draw a batch, and the values of an object column that is put with the batch."""
    batch = draw(batches())
    size = len(batch.ids)
    return batch, draw(st.lists(objects(), min_size=size, max_size=size))


# -- sequences of writes -------------------------------------------------------------------------


@dataclass(frozen=True)
class Write:
    """One put of one field, as its rows by id."""

    rows: dict[str, torch.Tensor]
    nested: bool

    @property
    def value(self) -> torch.Tensor:
        """The column to put."""
        rows = list(self.rows.values())
        return jagged(rows) if self.nested else stack_or_nest(rows)


@st.composite
def overwrites(draw: DrawFn, ids: Sequence[str]) -> list[Write]:
    """Draw writes of one field: one of all rows, then some of any rows, with any lengths.

    A write of all rows may change the dtype. Trailing dimensions stay the same, as
    the contract does not promise that they may change.
    """
    trailing = draw(st.just(()) | row_shapes(1, 2, min_side=1))
    dtype = draw(ANY_DTYPE)
    writes = [draw(_writes(ids, dtype, trailing))]
    for _ in range(draw(st.integers(1, 3))):
        chosen = draw(st.just(list(ids)) | selections(ids))
        if len(chosen) == len(ids):
            dtype = draw(ANY_DTYPE)
        writes.append(draw(_writes(chosen, dtype, trailing)))
    return writes


@st.composite
def _writes(
    draw: DrawFn, ids: Sequence[str], dtype: torch.dtype, trailing: tuple[int, ...]
) -> Write:
    rows = {i: draw(tensors(dtype, (draw(st.integers(0, 4)), *trailing))) for i in ids}
    return Write(rows, draw(st.booleans()))


def writes_of_any_dtypes(ids: Sequence[str]) -> SearchStrategy[list[Write]]:
    """Draw puts of one field for some of the rows, each put in any dtype."""
    shapes = st.just(()) | row_shapes(1, 1, min_side=1)
    puts = st.tuples(selections(ids), ANY_DTYPE)
    return shapes.flatmap(
        lambda trailing: st.lists(
            puts.flatmap(lambda put: _writes(*put, trailing)), min_size=2, max_size=4
        )
    )


@st.composite
def object_overwrites(draw: DrawFn, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Draw writes of an object column, as values by id: one of all rows, then some of any rows."""
    chosen = st.just(list(ids)) | selections(ids)
    later = draw(st.lists(chosen, min_size=1, max_size=2))
    return [{i: draw(objects()) for i in each} for each in (ids, *later)]


#: Ids and fields of one put.
PartialWrite = tuple[list[str], list[str]]


def partial_writes(ids: Sequence[str], fields: Sequence[str]) -> SearchStrategy[list[PartialWrite]]:
    """Draw puts that each write some fields of some rows; other fields stay unproduced."""
    return st.lists(st.tuples(selections(ids), selections(fields)), min_size=1, max_size=4)

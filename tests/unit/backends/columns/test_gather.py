"""Rows gathered from blocks are compared with torch row by row."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.columns import gather as gathering
from rlconform.backends.columns.column_block import ColumnBlock, StoredColumn
from rlconform.backends.columns.encode import batch_of, pack
from rlconform.backends.columns.encode import read as read_fields
from rlconform.backends.columns.gather import compact, gather
from rlconform.backends.columns.selection import RowSelection
from rlconform.wire import object_column, rows_of

MIB = 1 << 20
DTYPES = [
    torch.bool, torch.int8, torch.float8_e5m2, torch.bfloat16, torch.uint16, torch.float32,
    torch.int64, torch.complex64, torch.complex128,
]  # fmt: skip
X = frozenset("x")

#: A requested row: the number of its block and its place there.
Cell = tuple[int, int]


def random_bits(shape: Sequence[int], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Random bytes, including NaN payloads; 0 and 1 for bool."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape)) * dtype.itemsize
    high = 2 if dtype is torch.bool else 256
    raw = torch.from_numpy(rng.integers(0, high, count, dtype=np.uint8))
    return raw.view(dtype).view(*shape) if count else torch.empty(*shape, dtype=dtype)


def jagged(values: Tensor, lengths: Sequence[int]) -> Tensor:
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def parcel_of(leaf: Tensor) -> ColumnBlock:
    n_rows = leaf.shape[0]
    return pack(TensorDict({"x": leaf}, [n_rows]), n_rows)


def picked(
    blocks: Sequence[ColumnBlock], cells: Sequence[Cell], n_pieces: int = 1
) -> list[RowSelection]:
    """Selections as an index makes them: one or several for each block."""
    pieces: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for position, (number, index) in enumerate(cells):
        pieces.setdefault((number, index % n_pieces), []).append((index, position))
    return [
        RowSelection(blocks[number], X, *map(np.array, zip(*rows, strict=True)))
        for (number, _), rows in pieces.items()
    ]


def read(pieces: Sequence[RowSelection], n_rows: int) -> tuple[StoredColumn, Tensor]:
    column = gather(pieces, "x", n_rows)
    return column, batch_of({"x": column}, n_rows).get("x")


def assert_rows(got: Tensor, expected: Sequence[Tensor]) -> None:
    rows = rows_of(got)
    assert len(rows) == len(expected)
    for row, want in zip(rows, expected, strict=True):
        assert (row.dtype, row.shape) == (want.dtype, want.shape)
        assert bits(row) == bits(want)


def bits(row: Tensor) -> bytes:
    flat = torch.empty(row.numel(), dtype=row.dtype)
    flat.copy_(row.reshape(-1))
    return flat.view(torch.uint8).numpy().tobytes()


LENGTHS = st.lists(st.integers(0, 5) | st.sampled_from([0, 40, 200]), min_size=1, max_size=6)
TAILS = st.lists(st.integers(0, 3), max_size=2).map(tuple)
#: Thresholds for the path of a copy, which depends on the rows' size: the default, always words,
#: always runs, always runs by several threads.
PATHS = st.sampled_from([(128, 8 * MIB), (10**9, 8 * MIB), (0, 8 * MIB), (0, 7)])


@st.composite
def asked(draw: st.DrawFn, sizes: Sequence[int]) -> list[Cell]:
    """Rows of blocks of these sizes: all in order, or any, with repeats, in any order."""
    cells = [(number, index) for number, size in enumerate(sizes) for index in range(size)]
    if draw(st.booleans()):
        start = draw(st.integers(0, len(cells) - 1))
        return cells[start : draw(st.integers(start + 1, len(cells)))]
    return draw(st.lists(st.sampled_from(cells), min_size=1, max_size=12))


@settings(max_examples=200, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), tail=TAILS, path=PATHS)
def test_gathered_rows_are_those_that_torch_would_take(
    data: st.DataObject, dtype: torch.dtype, tail: tuple[int, ...], path: tuple[int, int]
) -> None:
    columns: list[list[Tensor]] = []
    blocks: list[ColumnBlock] = []
    dense: list[bool] = []
    for seed in range(data.draw(st.integers(1, 3), label="blocks")):
        dense.append(data.draw(st.booleans(), label="dense"))
        lengths = data.draw(LENGTHS, label="lengths")
        if dense[-1]:
            lengths = [lengths[0]] * len(lengths)
        values = random_bits((sum(lengths), *tail), dtype, seed)
        rows = list(values.split(lengths))
        blocks.append(parcel_of(torch.stack(rows) if dense[-1] else jagged(values, lengths)))
        columns.append(rows)
    cells = data.draw(asked([len(rows) for rows in columns]), label="cells")
    pieces = picked(blocks, cells, data.draw(st.integers(1, 2), label="pieces"))
    long_run, thread_bytes = path
    with (
        mock.patch.object(gathering, "_LONG_RUN", long_run),
        mock.patch.object(gathering, "_THREAD_BYTES", thread_bytes),
        mock.patch.object(os, "sched_getaffinity", return_value=range(3)),
    ):
        column, got = read(pieces, len(cells))
    expected = [columns[number][index] for number, index in cells]
    assert_rows(got, expected)
    one_length = len({len(row) for row in expected}) == 1
    assert column.layout == ("dense" if one_length else "jagged")
    assert got.is_nested == (column.layout == "jagged")


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 3), max_size=3).map(tuple),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3),
)
def test_dense_rows_of_one_shape_stay_dense(
    data: st.DataObject, dtype: torch.dtype, shape: tuple[int, ...], sizes: list[int]
) -> None:
    """Also scalar rows, which no jagged layout can represent."""
    leaves = [random_bits((size, *shape), dtype, seed) for seed, size in enumerate(sizes)]
    cells = data.draw(asked(sizes))
    column, got = read(picked([parcel_of(leaf) for leaf in leaves], cells), len(cells))
    assert (column.layout, got.shape) == ("dense", (len(cells), *shape))
    assert_rows(got, [leaves[number][index] for number, index in cells])


@settings(max_examples=50, deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_objects_are_gathered_whole(data: st.DataObject, sizes: list[int]) -> None:
    values = [
        [{"row": (number, index), "text": "x" * (7 * index)} for index in range(size)]
        for number, size in enumerate(sizes)
    ]
    blocks = [pack(TensorDict({"x": object_column(v)}, [len(v)]), len(v)) for v in values]
    cells = data.draw(asked(sizes))
    column = gather(picked(blocks, cells), "x", len(cells))
    assert column.layout == "object"
    got = batch_of({"x": column}, len(cells)).get("x").tolist()
    assert got == [values[number][index] for number, index in cells]


# Layouts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_zero_length_rows_keep_their_place(dtype: torch.dtype) -> None:
    values = random_bits((5, 2), dtype)
    columns = parcel_of(jagged(values, [0, 2, 0, 0, 3, 0]))
    rows = values.split([0, 2, 0, 0, 3, 0])
    for order in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [0, 2, 5], [0], [4, 4, 0, 1, 1]):
        _, got = read(picked([columns], [(0, index) for index in order]), len(order))
        assert_rows(got, [rows[index] for index in order])


def test_a_rows_tokens_may_have_no_elements() -> None:
    columns = parcel_of(jagged(torch.empty(4, 0, 3), [1, 3]))
    column, got = read(picked([columns], [(0, 1), (0, 0)]), 2)
    assert column.values.size == 0
    assert [tuple(row.shape) for row in rows_of(got)] == [(3, 0, 3), (1, 0, 3)]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.zeros(1, 2, 3), torch.zeros(1, 2, 4)),
        (torch.zeros(1), torch.zeros(1, 1)),
        (torch.zeros(1), jagged(torch.zeros(1), [1])),
        (jagged(torch.zeros(1, 3), [1]), jagged(torch.zeros(1, 4), [1])),
        (torch.zeros(1), torch.zeros(1, dtype=torch.int32)),
        (torch.zeros(1, 2, dtype=torch.int32), torch.zeros(1, 2)),
    ],
)
def test_rows_that_no_tensor_holds_are_refused(left: Tensor, right: Tensor) -> None:
    with pytest.raises(ValueError, match="differ"):
        read(picked([parcel_of(left), parcel_of(right)], [(0, 0), (1, 0)]), 2)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0], [1]])
def test_the_result_has_memory_of_its_own(order: list[int]) -> None:
    for leaf in (torch.arange(12.0).view(3, 4), jagged(torch.arange(12.0), [4, 4, 4])):
        columns = parcel_of(leaf)
        column = gather(picked([columns], [(0, index) for index in order]), "x", len(order))
        assert not np.shares_memory(column.values, columns["x"].values)
        assert column.values.flags.writeable
        if column.offsets is not None:
            assert not np.shares_memory(column.offsets, columns["x"].offsets)


def test_only_the_pieces_that_have_the_field_are_read() -> None:
    x, y = (TensorDict({name: torch.arange(3)}, [3]) for name in "xy")
    rows = np.arange(3)
    pieces = [
        RowSelection(pack(y, 3), frozenset("y"), rows, rows),
        RowSelection(pack(x, 3) | pack(y, 3), X, rows[::-1], rows),
    ]
    assert read(pieces, 3)[1].tolist() == [2, 1, 0]


def test_fields_of_unlike_pieces_share_nothing() -> None:
    """Rows that received one field in one put, and another field in a later put."""
    x, y = (TensorDict({name: torch.arange(3)}, [3]) for name in "xy")
    forth, back = np.arange(3), np.arange(3)[::-1]
    pieces = [
        RowSelection(pack(x, 3), frozenset("x"), forth, forth),
        RowSelection(pack(y, 3), frozenset("y"), back, forth),
    ]
    got = read_fields(pieces, ["x", "y"], 3)
    assert (got["x"].tolist(), got["y"].tolist()) == ([0, 1, 2], [2, 1, 0])


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_runs_are_copied_in_any_order(
    monkeypatch: pytest.MonkeyPatch, order: Sequence[int]
) -> None:
    monkeypatch.setattr(gathering, "_LONG_RUN", 0)
    leaf = torch.arange(8).view(4, 2)
    _, got = read(picked([parcel_of(leaf)], [(0, index) for index in order]), 4)
    assert torch.equal(got, leaf[list(order)])


def test_unlike_shapes_are_named() -> None:
    left, right = parcel_of(torch.zeros(1, 2, 3)), parcel_of(torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match=r"first dimension: \[\(2, 3\), \(2, 4\)\]"):
        read(picked([left, right], [(0, 0), (1, 0)]), 2)


# Large batches


@pytest.mark.parametrize(
    "order",
    [[0, 1, 2, 3, 4, 5], [5, 0, 3, 3, 1, 4]],
    ids=["in order", "shuffled"],
)
def test_many_bytes_are_copied_by_several_threads(
    monkeypatch: pytest.MonkeyPatch, order: list[int]
) -> None:
    """Rows of odd sizes, so the threads' parts begin and end within rows."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(5))
    lengths = [7 * MIB + 3, 0, 5 * MIB + 1, 11, 9 * MIB, 3 * MIB + 5]
    values = torch.from_numpy(np.random.default_rng(0).integers(0, 256, sum(lengths), np.uint8))
    rows = values.split(lengths)
    _, got = read(picked([parcel_of(jagged(values, lengths))], [(0, i) for i in order]), 6)
    assert all(
        torch.equal(*pair) for pair in zip(rows_of(got), [rows[i] for i in order], strict=True)
    )


class LateThread:
    """A slow thread that does nothing until ``join``."""

    def __init__(self, target: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.join = lambda: target(*args, **kwargs)

    def start(self) -> None:
        pass


def test_the_slowest_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    monkeypatch.setattr(gathering.threading, "Thread", LateThread)
    leaf = torch.ones(4, 8 * MIB, dtype=torch.uint8)
    _, got = read(picked([parcel_of(leaf)], [(0, index) for index in range(4)]), 4)
    assert torch.equal(got, leaf)


# Rewriting


@settings(max_examples=50, deadline=None)
@given(data=st.data(), n_rows=st.integers(1, 8))
def test_live_rows_are_written_anew_as_they_were(data: st.DataObject, n_rows: int) -> None:
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=n_rows, max_size=n_rows))
    fields = TensorDict(
        {
            "dense": random_bits((n_rows, 3), torch.bfloat16),
            "jagged": jagged(random_bits((sum(lengths), 2), torch.int64), lengths),
            "log": object_column([{"row": index} for index in range(n_rows)]),
        },
        [n_rows],
    )
    whole = pack(fields, n_rows)
    rows = data.draw(st.lists(st.integers(0, n_rows - 1), unique=True, min_size=1).map(sorted))
    sets = data.draw(
        st.lists(
            st.frozensets(st.sampled_from(["dense", "jagged", "log"]), min_size=1),
            unique=True,
            min_size=1,
        )
    )
    fresh = compact(whole, dict.fromkeys(sets, rows))
    assert fresh.keys() == set(sets)
    for names, columns in fresh.items():
        assert columns.keys() == names
        for name, column in columns.items():
            assert column.dtype == whole[name].dtype
            one_length = len({lengths[row] for row in rows}) == 1
            as_put = {"dense": "dense", "jagged": "jagged", "log": "object"}[name]
            assert column.layout == ("dense" if name == "jagged" and one_length else as_put)
            assert not np.shares_memory(column.values, whole[name].values)
            got = batch_of({name: column}, len(rows)).get(name)
            if name == "log":
                assert got.tolist() == [{"row": index} for index in rows]
            else:
                before = rows_of(fields.get(name))
                assert_rows(got, [before[index] for index in rows])

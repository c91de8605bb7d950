"""Every packing algorithm equals its definition in plain loops and has the common properties."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.plane.packing import (
    PACKING_ALGORITHMS,
    PackingAlgorithm,
    pack_sequences,
    row_lengths,
)

Bins = list[list[int]]

every_algorithm = pytest.mark.parametrize("algorithm", PACKING_ALGORITHMS)


@st.composite
def packable(draw: st.DrawFn, most_rows: int = 40) -> tuple[list[int], int]:
    """Lengths and a sufficient capacity; small ones, so that ties are frequent."""
    capacity = draw(st.integers(1, 60))
    return draw(st.lists(st.integers(0, capacity), max_size=most_rows)), capacity


def seeded_lengths(n_rows: int, longest: int, seed: int = 0) -> list[int]:
    draw = Random(seed)
    return [draw.randint(1, longest) for _ in range(n_rows)]


def loads(bins: Bins, lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[row] for row in rows) for rows in bins]


def rows_of(bins: Bins) -> list[int]:
    return [row for rows in bins for row in rows]


# -- the definitions -------------------------------------------------------------------------------


def textbook_concatenative(lengths: Sequence[int], capacity: int) -> Bins:
    bins: Bins = []
    for row, length in enumerate(lengths):
        if not bins or loads(bins[-1:], lengths)[0] + length > capacity:
            bins.append([])
        bins[-1].append(row)
    return bins


def textbook_first_fit(rows: Sequence[int], lengths: Sequence[int], capacity: int) -> Bins:
    bins: Bins = []
    room: list[int] = []
    for row in rows:
        for number, left in enumerate(room):
            if lengths[row] <= left:
                bins[number].append(row)
                room[number] -= lengths[row]
                break
        else:
            bins.append([row])
            room.append(capacity - lengths[row])
    return bins


def longest_first(rows: Sequence[int], lengths: Sequence[int]) -> list[int]:
    return sorted(rows, key=lambda row: (-lengths[row], row))


def textbook_first_fit_decreasing(lengths: Sequence[int], capacity: int) -> Bins:
    return textbook_first_fit(longest_first(range(len(lengths)), lengths), lengths, capacity)


def textbook_modified_first_fit_decreasing(lengths: Sequence[int], capacity: int) -> Bins:
    """The five phases, where every search loops over the remaining rows, longest first."""
    rows = longest_first(range(len(lengths)), lengths)
    large = [row for row in rows if 2 * lengths[row] > capacity]
    medium = [row for row in rows if 2 * lengths[row] <= capacity < 3 * lengths[row]]
    small = [row for row in rows if 3 * lengths[row] <= capacity < 6 * lengths[row]]
    tiny = [row for row in rows if 6 * lengths[row] <= capacity]
    bins = [[row] for row in large]

    def longest_that_fits(candidates: list[int], room: int) -> int | None:
        return next((row for row in candidates if lengths[row] <= room), None)

    def room_in(rows: list[int]) -> int:
        return capacity - sum(lengths[row] for row in rows)

    for rows_of_bin in bins:
        row = longest_that_fits(medium, room_in(rows_of_bin))
        if row is not None:
            medium.remove(row)
            rows_of_bin.append(row)
    for rows_of_bin in reversed(bins):
        if len(rows_of_bin) == 1 and len(small) >= 2:
            second, first = small[-2:]
            if lengths[first] + lengths[second] <= room_in(rows_of_bin):
                rows_of_bin.append(small.pop())
                beside = longest_that_fits(small, room_in(rows_of_bin))
                assert beside is not None
                small.remove(beside)
                rows_of_bin.append(beside)
    rest = medium + small + tiny
    for rows_of_bin in bins:
        while (row := longest_that_fits(rest, room_in(rows_of_bin))) is not None:
            rest.remove(row)
            rows_of_bin.append(row)
    return bins + textbook_first_fit(rest, lengths, capacity)


def textbook_modified_first_fit_shuffle(lengths: Sequence[int], capacity: int) -> Bins:
    """First fit, rows over half the capacity first; seed 0 shuffles each of the two parts."""
    draw = Random(0).random
    drawn = {row: draw() for row in range(len(lengths))}
    order = sorted(drawn, key=drawn.__getitem__)
    long = [row for row in order if 2 * lengths[row] > capacity]
    others = [row for row in order if 2 * lengths[row] <= capacity]
    return textbook_first_fit(long + others, lengths, capacity)


DEFINITIONS: dict[PackingAlgorithm, Callable[[Sequence[int], int], Bins]] = {
    "concatenative": textbook_concatenative,
    "first_fit_decreasing": textbook_first_fit_decreasing,
    "modified_first_fit_decreasing": textbook_modified_first_fit_decreasing,
    "modified_first_fit_shuffle": textbook_modified_first_fit_shuffle,
}


@every_algorithm
class TestDefinition:
    """The fast search opens the same bins and fills them in the same order."""

    @settings(deadline=None, max_examples=200)
    @given(case=packable())
    def test_the_bins_are_those_of_the_definition(
        self, algorithm: PackingAlgorithm, case: tuple[list[int], int]
    ) -> None:
        lengths, capacity = case
        assert pack_sequences(lengths, capacity, algorithm) == DEFINITIONS[algorithm](
            lengths, capacity
        )

    @pytest.mark.parametrize("longest", [60, 400, 1000], ids=["short", "mixed", "to the brim"])
    def test_so_they_are_for_many_rows(self, algorithm: PackingAlgorithm, longest: int) -> None:
        lengths = seeded_lengths(1500, longest)
        assert pack_sequences(lengths, 1000, algorithm) == DEFINITIONS[algorithm](lengths, 1000)


class TestShuffle:
    """``modified_first_fit_shuffle`` chooses at random which rows share a bin."""

    def test_a_seed_draws_one_order_and_another_seed_another(self) -> None:
        lengths = seeded_lengths(300, 500)
        once, again, other = (
            pack_sequences(lengths, 1000, "modified_first_fit_shuffle", seed=seed)
            for seed in (7, 7, 8)
        )
        assert once == again
        assert once != other

    def test_neither_length_nor_number_decides_who_shares_a_bin(self) -> None:
        """Of 1,000 rows of one length, four per bin, neighbours would share a bin 750 times."""
        bins = pack_sequences([250] * 1000, 1000, "modified_first_fit_shuffle")
        together = sum(abs(a - b) == 1 for rows in bins for a, b in pairwise(rows))
        assert together < 20

    @pytest.mark.parametrize("algorithm", PACKING_ALGORITHMS[:3])
    def test_the_others_do_not_look_at_the_seed(self, algorithm: PackingAlgorithm) -> None:
        lengths = seeded_lengths(300, 500)
        assert pack_sequences(lengths, 1000, algorithm, seed=1) == pack_sequences(
            lengths, 1000, algorithm, seed=2
        )


def test_the_examples_of_the_module_stand() -> None:
    lengths = [600, 200, 250, 200, 200, 550]
    assert {name: pack_sequences(lengths, 1000, name) for name in PACKING_ALGORITHMS} == {
        "concatenative": [[0, 1], [2, 3, 4], [5]],
        "first_fit_decreasing": [[0, 2], [5, 1, 3], [4]],
        "modified_first_fit_decreasing": [[0, 3, 1], [5, 4, 2]],
        "modified_first_fit_shuffle": [[5, 3, 2], [0, 4, 1]],
    }


# -- properties of every algorithm ----------------------------------------------------------------


@every_algorithm
class TestEveryAlgorithm:
    """Properties of every algorithm."""

    @settings(deadline=None, max_examples=150)
    @given(case=packable(), multiple=st.integers(1, 6), seed=st.integers(0, 3))
    def test_every_row_is_in_one_bin_within_the_capacity(
        self, algorithm: PackingAlgorithm, case: tuple[list[int], int], multiple: int, seed: int
    ) -> None:
        lengths, capacity = case
        lengths = lengths[: len(lengths) // multiple * multiple]
        bins = pack_sequences(lengths, capacity, algorithm, bin_multiple=multiple, seed=seed)
        assert sorted(rows_of(bins)) == list(range(len(lengths)))
        assert all(bins)
        assert max(loads(bins, lengths), default=0) <= capacity
        assert len(bins) % multiple == 0

    @settings(deadline=None, max_examples=100)
    @given(case=packable(), multiple=st.integers(2, 8))
    def test_a_multiple_adds_the_fewest_bins_and_only_cuts_what_was_packed(
        self, algorithm: PackingAlgorithm, case: tuple[list[int], int], multiple: int
    ) -> None:
        lengths, capacity = case
        lengths = lengths[: len(lengths) // multiple * multiple]
        plain = pack_sequences(lengths, capacity, algorithm)
        evened = pack_sequences(lengths, capacity, algorithm, bin_multiple=multiple)
        assert len(evened) - len(plain) == -len(plain) % multiple
        assert rows_of(evened) == rows_of(plain)

    def test_no_rows_need_no_bins(self, algorithm: PackingAlgorithm) -> None:
        assert pack_sequences([], 10, algorithm, bin_multiple=8) == []

    def test_rows_without_tokens_find_a_bin(self, algorithm: PackingAlgorithm) -> None:
        (rows,) = pack_sequences([0, 0, 0], 10, algorithm)
        assert sorted(rows) == [0, 1, 2]

    @pytest.mark.parametrize("kind", [torch.tensor, np.array, tuple])
    def test_lengths_come_as_any_sequence(
        self, algorithm: PackingAlgorithm, kind: Callable[[list[int]], Any]
    ) -> None:
        lengths = seeded_lengths(50, 100)
        bins = pack_sequences(kind(lengths), 128, algorithm)
        assert bins == pack_sequences(lengths, 128, algorithm)
        assert {type(row) for row in rows_of(bins)} == {int}

    @settings(deadline=None, max_examples=60)
    @given(data=st.data())
    def test_it_opens_fewer_than_twice_the_bins_that_are_needed(
        self, algorithm: PackingAlgorithm, data: st.DataObject
    ) -> None:
        lengths, capacity = data.draw(packable())
        bins = pack_sequences(lengths, capacity, algorithm)
        assert len(bins) <= 2 * sum(lengths) // capacity + 1


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_the_decreasing_ones_keep_the_bounds_that_are_proved_of_them(data: st.DataObject) -> None:
    """Rows cut from full bins have a known optimum. FFD 11/9 + 6/9 (Dosa), MFFD 71/60 + 1 (Yue)."""
    capacity = 120
    n_bins = data.draw(st.integers(1, 8))
    cuts = st.lists(st.integers(1, capacity - 1), min_size=1, max_size=6, unique=True).map(sorted)
    lengths: list[int] = []
    for _ in range(n_bins):
        edges = [0, *data.draw(cuts), capacity]
        lengths += [stop - start for start, stop in pairwise(edges)]
    lengths = data.draw(st.permutations(lengths))
    assert 9 * len(pack_sequences(lengths, capacity, "first_fit_decreasing")) <= 11 * n_bins + 6
    modified = pack_sequences(lengths, capacity, "modified_first_fit_decreasing")
    assert 60 * len(modified) <= 71 * n_bins + 60


# -- evening out -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        pytest.param([4, 4, 4, 4], [[0, 1], [2, 3]], id="in the middle"),
        pytest.param([8, 2, 2, 2], [[0], [1, 2, 3]], id="by tokens, not by rows"),
        pytest.param([2, 2, 2, 8], [[0, 1, 2], [3]], id="by tokens, the last row's too"),
        pytest.param([9, 0, 0, 0], [[0, 1], [2, 3]], id="by rows, where tokens leave the choice"),
        pytest.param([0, 0, 0, 0], [[0, 1], [2, 3]], id="no tokens at all"),
    ],
)
def test_a_bin_is_cut_where_the_greater_half_is_least(lengths: list[int], expected: Bins) -> None:
    assert pack_sequences(lengths, 16, "concatenative", bin_multiple=2) == expected


def test_the_fullest_bin_of_several_rows_is_cut_again_and_again() -> None:
    lengths = [16, 8, 8, 1, 2]  # bins of 16 (one row), 16 and 3 tokens
    assert pack_sequences(lengths, 16, "concatenative") == [[0], [1, 2], [3, 4]]
    assert pack_sequences(lengths, 16, "concatenative", bin_multiple=4) == [
        [0], [1], [2], [3, 4],
    ]  # fmt: skip
    assert pack_sequences(lengths, 16, "concatenative", bin_multiple=5) == [
        [0], [1], [2], [3], [4],
    ]  # fmt: skip


def test_half_of_a_bin_is_cut_before_another_that_is_less_full() -> None:
    lengths = [4, 4, 4, 4, 1, 2]  # bins of 16 and 3 tokens
    assert pack_sequences(lengths, 16, "concatenative", bin_multiple=4) == [
        [0], [1], [2, 3], [4, 5],
    ]  # fmt: skip


# -- errors ----------------------------------------------------------------------------------------


@every_algorithm
class TestErrors:
    """The error for rows that cannot be packed names the cause."""

    def test_a_row_longer_than_a_bin(self, algorithm: PackingAlgorithm) -> None:
        with pytest.raises(ValueError, match=r"row 2 .*11.*10"):
            pack_sequences([3, 10, 11, 4], 10, algorithm)

    def test_fewer_rows_than_bins(self, algorithm: PackingAlgorithm) -> None:
        with pytest.raises(ValueError, match="4 bins"):
            pack_sequences([1, 1, 1], 10, algorithm, bin_multiple=4)

    @pytest.mark.parametrize("bin_multiple", [0, -1])
    def test_a_multiple_below_one(self, algorithm: PackingAlgorithm, bin_multiple: int) -> None:
        with pytest.raises(ValueError, match="bin_multiple"):
            pack_sequences([1], 10, algorithm, bin_multiple=bin_multiple)

    @pytest.mark.parametrize("capacity", [0, -5])
    def test_a_capacity_below_one(self, algorithm: PackingAlgorithm, capacity: int) -> None:
        with pytest.raises(ValueError, match="capacity"):
            pack_sequences([0], capacity, algorithm)


def test_an_unknown_algorithm_is_told_the_known_ones() -> None:
    unknown: Any = "best_fit"
    with pytest.raises(ValueError, match=r"best_fit.*modified_first_fit_decreasing"):
        pack_sequences([1], 10, unknown)


@pytest.mark.parametrize(
    "lengths",
    [[3, None], [3, -1], [3, 2.0], [3, True], [3, "4"], torch.tensor([1.0]), torch.ones(2, 2)],
    ids=str,
)
def test_a_length_that_is_not_a_number_of_tokens_is_refused(lengths: Any) -> None:
    with pytest.raises(ValueError, match="length"):
        row_lengths(lengths)


# -- cost ------------------------------------------------------------------------------------------


def lines(work: Callable[[], object]) -> int:
    """Number of Python lines that ``work`` executes, which does not depend on the machine."""
    count = 0

    def on_line(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    before = sys.gettrace()
    sys.settrace(on_line)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


CAPACITY = 1 << 13
COSTLY: dict[str, Callable[[int], list[int]]] = {
    "a bin for each row": lambda n: [CAPACITY - 1 - row % 97 for row in range(n)],
    "few bins": lambda n: [100 + row % 7 for row in range(n)],
    "no tokens": lambda n: [0] * n,
    "of one length": lambda n: [CAPACITY // 3] * n,
    "of any length": lambda n: seeded_lengths(n, CAPACITY),
    "pairs": lambda n: [length for row in range(n // 2) for length in (4000 + row % 90, 4100)],
}


@every_algorithm
@pytest.mark.parametrize("lengths_of", COSTLY.values(), ids=COSTLY.keys())
@pytest.mark.parametrize("bin_multiple", [1, 64])
def test_cost_grows_with_the_rows_and_not_with_their_square(
    algorithm: PackingAlgorithm, lengths_of: Callable[[int], list[int]], bin_multiple: int
) -> None:
    few, many = (
        lines(
            lambda n=n: pack_sequences(
                lengths_of(n), CAPACITY, algorithm, bin_multiple=bin_multiple
            )
        )
        for n in (512, 4096)
    )
    assert many < 8 * 2 * few  # 8 times the rows, and more steps for each search


def test_that_count_sees_that_the_textbook_is_quadratic() -> None:
    few, many = (
        lines(lambda n=n: textbook_first_fit_decreasing(COSTLY["of any length"](n), CAPACITY))
        for n in (64, 512)
    )
    assert many > 8 * 3 * few

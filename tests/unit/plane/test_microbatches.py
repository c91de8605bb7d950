"""A global batch's micro-batches have bounded cost and equal rounds on all ranks."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.plane.microbatches import (
    DynamicBatching,
    MicroBatch,
    SequencePacking,
    batch_by_length,
    pack,
    round_up,
    split_evenly,
)
from rlconform.plane.packing import PACKING_ALGORITHMS, pack_sequences

LIMIT = 64


@st.composite
def global_batches(draw: st.DrawFn) -> tuple[list[int], int]:
    """Lengths of a global batch and the number of ranks, which divides it."""
    dp_world = draw(st.integers(1, 4))
    share = draw(st.integers(1, 10))
    n_rows = dp_world * share
    return draw(st.lists(st.integers(0, LIMIT), min_size=n_rows, max_size=n_rows)), dp_world


def rows_of(rank: list[MicroBatch]) -> list[int]:
    return [row for microbatch in rank for row in microbatch.rows]


def test_rounding_up_reaches_the_next_multiple_and_no_further() -> None:
    assert [round_up(length, 4) for length in (0, 1, 4, 5, 8)] == [0, 4, 4, 8, 8]


def test_without_packing_each_rank_gets_the_next_rows() -> None:
    ranks = split_evenly([5, 1, 2, 7, 3, 3], 3)
    assert ranks == [[([0, 1], 5)], [([2, 3], 7)], [([4, 5], 3)]]


class TestSettings:
    """An invalid setting is refused by the constructor."""

    @pytest.mark.parametrize("count", [0, -1, 1.5, True, None, "64"], ids=repr)
    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            (SequencePacking, "max_tokens_per_microbatch"),
            (SequencePacking, "sequence_length_pad_multiple"),
            (DynamicBatching, "max_tokens_per_microbatch"),
            (DynamicBatching, "sequence_length_round"),
        ],
    )
    def test_a_count_is_a_whole_number_of_at_least_one(
        self, kind: Any, name: str, count: Any
    ) -> None:
        with pytest.raises(ValueError, match=name):
            kind(**({"max_tokens_per_microbatch": 64} | {name: count}))

    @pytest.mark.parametrize("seed", [-1, 0.5, None, "0"], ids=repr)
    def test_a_seed_is_a_whole_number(self, seed: Any) -> None:
        with pytest.raises(ValueError, match="seed"):
            SequencePacking(64, seed=seed)

    @pytest.mark.parametrize("name", ["algorithm", "microbatch_order"])
    def test_a_choice_is_one_of_the_known_ones(self, name: str) -> None:
        unknown: Any = {name: "best"}
        with pytest.raises(ValueError, match=rf"{name}\n.*'best'"):
            SequencePacking(64, **unknown)

    @pytest.mark.parametrize("setting", [SequencePacking(64), DynamicBatching(64)])
    def test_they_do_not_change_once_made(self, setting: Any) -> None:
        with pytest.raises(FrozenInstanceError):
            setting.max_tokens_per_microbatch = 1


class TestPack:
    """Sequence packing: bins are distributed to the ranks."""

    @pytest.mark.parametrize("algorithm", PACKING_ALGORITHMS)
    @settings(deadline=None, max_examples=60)
    @given(case=global_batches(), multiple=st.sampled_from([1, 2, 8]))
    def test_the_bins_of_the_rounded_lengths_are_dealt_in_turn(
        self, algorithm: Any, case: tuple[list[int], int], multiple: int
    ) -> None:
        lengths, dp_world = case
        padded = [round_up(length, multiple) for length in lengths]
        bins = pack_sequences(padded, LIMIT, algorithm, bin_multiple=dp_world, seed=5)
        ranks = pack(lengths, dp_world, SequencePacking(LIMIT, algorithm, multiple, seed=5))
        dealt = [ranks[number % dp_world][number // dp_world] for number in range(len(bins))]
        assert [microbatch.rows for microbatch in dealt] == bins
        assert [microbatch.length for microbatch in dealt] == [
            sum(padded[row] for row in rows) for rows in bins
        ]
        assert {len(rank) for rank in ranks} == {len(bins) // dp_world}

    def test_rounding_counts_against_the_limit(self) -> None:
        """Two rows of 5 tokens fit in 12; rounded up to 8 tokens each, they do not."""
        plain, rounded = (pack([5, 5], 1, SequencePacking(12, "concatenative", m)) for m in (1, 8))
        assert plain == [[([0, 1], 10)]]
        assert rounded == [[([0], 8), ([1], 8)]]

    @settings(deadline=None, max_examples=60)
    @given(case=global_batches())
    def test_largest_first_reorders_each_ranks_own_microbatches(
        self, case: tuple[list[int], int]
    ) -> None:
        lengths, dp_world = case
        as_packed = pack(lengths, dp_world, SequencePacking(LIMIT))
        by_size = pack(lengths, dp_world, SequencePacking(LIMIT, microbatch_order="largest_first"))
        for packed, ordered in zip(as_packed, by_size, strict=True):
            assert ordered == sorted(packed, key=lambda microbatch: -microbatch.length)

    def test_largest_first_changes_an_order_that_the_packer_left(self) -> None:
        lengths, packing = [1, 9, 4, 7], SequencePacking(10, "concatenative")
        assert [m.length for m in pack(lengths, 1, packing)[0]] == [10, 4, 7]
        ordered = SequencePacking(10, "concatenative", microbatch_order="largest_first")
        assert [m.length for m in pack(lengths, 1, ordered)[0]] == [10, 7, 4]


def textbook_shapes(
    lengths: list[int], dp_world: int, batching: DynamicBatching
) -> list[tuple[int, int]]:
    """Rows and width of each round: add one row per rank while all ranks are within the limit."""
    ranks = [sorted(lengths)[rank::dp_world] for rank in range(dp_world)]
    shapes: list[tuple[int, int]] = []
    for nth in zip(*ranks, strict=True):
        width = -(-max(nth) // batching.sequence_length_round) * batching.sequence_length_round
        if shapes:
            n_rows, before = shapes[-1]
            widest = max(width, before)
            if (n_rows + 1) * widest <= batching.max_tokens_per_microbatch:
                shapes[-1] = (n_rows + 1, widest)
                continue
        shapes.append((1, width))
    return shapes


class TestBatchByLength:
    """Dynamic batching: rounds of one shape on every rank."""

    @settings(deadline=None, max_examples=200)
    @given(
        case=global_batches(),
        limit=st.integers(LIMIT, 4 * LIMIT),
        multiple=st.sampled_from([1, 4, 16]),
    )
    def test_every_rank_runs_the_rounds_of_the_definition(
        self, case: tuple[list[int], int], limit: int, multiple: int
    ) -> None:
        lengths, dp_world = case
        batching = DynamicBatching(limit, multiple)
        shapes = textbook_shapes(lengths, dp_world, batching)
        for rank in batch_by_length(lengths, dp_world, batching):
            assert [(len(rows), width) for rows, width in rank] == shapes

    @settings(deadline=None, max_examples=100)
    @given(case=global_batches())
    def test_rows_are_dealt_shortest_first(self, case: tuple[list[int], int]) -> None:
        lengths, dp_world = case
        ranks = batch_by_length(lengths, dp_world, DynamicBatching(LIMIT))
        dealt = [row for nth in zip(*map(rows_of, ranks), strict=True) for row in nth]
        assert dealt == sorted(range(len(lengths)), key=lambda row: (lengths[row], row))

    @settings(deadline=None, max_examples=100)
    @given(case=global_batches(), multiple=st.sampled_from([1, 4, 16]))
    def test_a_round_is_as_wide_as_its_longest_row_on_any_rank_needs(
        self, case: tuple[list[int], int], multiple: int
    ) -> None:
        lengths, dp_world = case
        for turn in zip(
            *batch_by_length(lengths, dp_world, DynamicBatching(2 * LIMIT, multiple)), strict=True
        ):
            longest = max(lengths[row] for microbatch in turn for row in microbatch.rows)
            assert {microbatch.length for microbatch in turn} == {round_up(longest, multiple)}

    @settings(deadline=None, max_examples=100)
    @given(case=global_batches())
    def test_a_new_round_begins_only_where_the_last_is_full(
        self, case: tuple[list[int], int]
    ) -> None:
        lengths, dp_world = case
        for rank in batch_by_length(lengths, dp_world, DynamicBatching(2 * LIMIT)):
            assert all(len(rows) * width <= 2 * LIMIT for rows, width in rank)
        ranks = batch_by_length(lengths, dp_world, DynamicBatching(2 * LIMIT))
        widest = ranks[-1]  # its rows are the longest of each round
        for before, after in pairwise(widest):
            assert (len(before.rows) + 1) * lengths[after.rows[0]] > 2 * LIMIT

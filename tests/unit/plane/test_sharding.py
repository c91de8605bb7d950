"""``shard_meta_for_dp`` meets requirements SHARD-01 to 07; these tests use no plane."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.certify.plugin.markers import requirement
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import (
    ELEM_COUNTS_PER_GB,
    GLOBAL_FORWARD_PAD_SEQLEN,
    MICRO_BATCH_INDICES,
    MICRO_BATCH_LENGTHS,
    PACKING_KEYS,
)
from rlconform.plane.microbatches import round_up
from rlconform.plane.packing import PACKING_ALGORITHMS
from rlconform.plane.sharding import (
    DynamicBatching,
    SequencePacking,
    ShardPlan,
    plan_shards,
    shard_meta_for_dp,
)

LIMIT = 64
Settings = dict[str, Any]

PACKED: dict[str, Settings] = {
    algorithm: {"sequence_packing": SequencePacking(LIMIT, algorithm)}
    for algorithm in PACKING_ALGORITHMS
}
PACKED |= {
    "rounded, largest first": {
        "sequence_packing": SequencePacking(
            LIMIT, sequence_length_pad_multiple=8, microbatch_order="largest_first"
        )
    },
    "dynamic": {"dynamic_batching": DynamicBatching(2 * LIMIT)},
    "dynamic, rounded": {"dynamic_batching": DynamicBatching(LIMIT, sequence_length_round=16)},
}
EVERY: dict[str, Settings] = {"no packing": {}, **PACKED}

in_every_mode = pytest.mark.parametrize("mode", EVERY.values(), ids=EVERY)
packed = pytest.mark.parametrize("mode", PACKED.values(), ids=PACKED)


def meta_of(lengths: list[int]) -> KVBatchMeta:
    rows = range(len(lengths))
    return KVBatchMeta(
        "train",
        "prev_lp",
        [f"u{row // 2}_g{row % 2}" for row in rows],
        fields=["input_ids", "token_mask"],
        sequence_lengths=list(lengths),
        extra_info={GLOBAL_FORWARD_PAD_SEQLEN: LIMIT, "notes": {"step": [3]}},
        tags=[{"input_lengths": lengths[row], "weight_version": row} for row in rows],
    )


@st.composite
def steps(draw: st.DrawFn) -> tuple[KVBatchMeta, int, int]:
    """A step's meta, the number of ranks, and a size of global batches that divides it."""
    dp_world = draw(st.integers(1, 4))
    size = dp_world * draw(st.integers(1, 6))
    n_rows = size * draw(st.integers(1, 3))
    lengths = st.lists(st.integers(0, LIMIT), min_size=n_rows, max_size=n_rows)
    return meta_of(draw(lengths)), dp_world, size


def spans(shard: KVBatchMeta) -> list[list[list[int]]]:
    """The shard's rows by global batch and micro-batch."""
    plan = shard.extra_info
    starts = accumulate(plan[ELEM_COUNTS_PER_GB], initial=0)
    return [
        [list(range(start + first, start + stop)) for first, stop in batch]
        for start, batch in zip(starts, plan[MICRO_BATCH_INDICES], strict=False)
    ]


@in_every_mode
class TestPermutation:
    """SHARD-01 and 02 without a plane; the contract's checks send rows through one."""

    @settings(deadline=None, max_examples=50)
    @given(step=steps())
    def test_shards_partition_the_ids_and_the_inverse_restores_their_order(
        self, mode: Settings, step: tuple[KVBatchMeta, int, int]
    ) -> None:
        meta, dp_world, size = step
        shards, inverse = shard_meta_for_dp(meta, dp_world, size, **mode)
        outputs = [sample_id for shard in shards for sample_id in shard.sample_ids]
        assert len(shards) == dp_world
        assert Counter(outputs) == Counter(meta.sample_ids)
        assert [outputs[place] for place in inverse] == meta.sample_ids

    def test_an_id_that_stands_twice_is_sharded_twice(self, mode: Settings) -> None:
        meta = replace(meta_of([5, 9, 9, 2]), sample_ids=["a", "b", "a", "c"])
        shards, inverse = shard_meta_for_dp(meta, 2, **mode)
        outputs = [sample_id for shard in shards for sample_id in shard.sample_ids]
        assert [outputs[place] for place in inverse] == ["a", "b", "a", "c"]


class TestKept:
    """SHARD-03: shards keep the meta's values."""

    @requirement("SHARD-03")
    @in_every_mode
    def test_a_shard_keeps_what_its_meta_knew(self, mode: Settings) -> None:
        meta = meta_of([9, 1, 30, 64, 2, 9, 40, 33])
        for shard in shard_meta_for_dp(meta, 2, 4, **mode)[0]:
            rows = [meta.sample_ids.index(sample_id) for sample_id in shard.sample_ids]
            own = {k: v for k, v in shard.extra_info.items() if k not in PACKING_KEYS}
            assert replace(shard, extra_info=own) == meta.subset(rows)
            assert all(key in shard.extra_info for key in PACKING_KEYS) == bool(mode)

    @requirement("SHARD-03")
    def test_shards_share_nothing_that_changes_with_the_meta_or_each_other(self) -> None:
        meta = meta_of([3, 5, 8, 1])
        kept = deepcopy(meta)
        first, second = shard_meta_for_dp(meta, 2, dynamic_batching=DynamicBatching(LIMIT))[0]
        expected = deepcopy(second)
        first.tags[0]["std"] = 0.5  # type: ignore[index]
        first.extra_info["notes"]["step"].append(4)
        first.extra_info[MICRO_BATCH_INDICES][0][0].append(9)
        first.extra_info[MICRO_BATCH_LENGTHS][0].append(9)
        first.fields.append("advantages")  # type: ignore[union-attr]
        assert (meta, second) == (kept, expected)

    @requirement("SHARD-03")
    @in_every_mode
    def test_the_plan_of_an_earlier_split_is_not_kept(self, mode: Settings) -> None:
        """The plan is for other rows: a worker that used it would skip some."""
        meta = meta_of([3, 5, 8, 1])
        earlier = {key: [["of another split"]] for key in PACKING_KEYS}
        stale = replace(meta, extra_info=meta.extra_info | earlier)
        assert shard_meta_for_dp(stale, 2, **mode) == shard_meta_for_dp(meta, 2, **mode)

    @requirement("SHARD-03")
    def test_a_meta_of_another_class_will_do(self) -> None:
        """A plane may return another class; a meta without tags or extra_info gets none."""
        known = meta_of([3, 5, 8, 1])
        foreign: Any = SimpleNamespace(**vars(known))
        assert shard_meta_for_dp(foreign, 2) == shard_meta_for_dp(known, 2)
        foreign.tags, foreign.extra_info = None, None
        for shard in shard_meta_for_dp(foreign, 2)[0]:
            assert (shard.tags, shard.extra_info) == (None, {})


class TestMicroBatches:
    """SHARD-04 and 05: the same number on every rank, within the limit."""

    @requirement("SHARD-04")
    @packed
    @settings(deadline=None, max_examples=50)
    @given(step=steps())
    def test_every_rank_has_as_many_in_each_global_batch(
        self, mode: Settings, step: tuple[KVBatchMeta, int, int]
    ) -> None:
        meta, dp_world, size = step
        shards, _ = shard_meta_for_dp(meta, dp_world, size, **mode)
        counts = [
            [len(batch) for batch in shard.extra_info[MICRO_BATCH_INDICES]] for shard in shards
        ]
        assert all(count == counts[0] for count in counts), counts
        assert len(counts[0]) == meta.size // size

    @requirement("SHARD-04")
    @pytest.mark.parametrize("mode", [PACKED["dynamic"], PACKED["dynamic, rounded"]])
    @settings(deadline=None, max_examples=50)
    @given(step=steps())
    def test_dynamic_rounds_have_one_shape_on_every_rank(
        self, mode: Settings, step: tuple[KVBatchMeta, int, int]
    ) -> None:
        meta, dp_world, size = step
        shards, _ = shard_meta_for_dp(meta, dp_world, size, **mode)
        plans = [{key: shard.extra_info[key] for key in PACKING_KEYS} for shard in shards]
        assert all(plan == plans[0] for plan in plans)

    @packed
    @settings(deadline=None, max_examples=50)
    @given(step=steps())
    def test_they_cover_each_row_of_the_shard_once_and_none_is_empty(
        self, mode: Settings, step: tuple[KVBatchMeta, int, int]
    ) -> None:
        meta, dp_world, size = step
        for shard in shard_meta_for_dp(meta, dp_world, size, **mode)[0]:
            microbatches = [rows for batch in spans(shard) for rows in batch]
            assert [row for rows in microbatches for row in rows] == list(range(shard.size))
            assert all(microbatches)
            ends = [batch[-1][1] for batch in shard.extra_info[MICRO_BATCH_INDICES]]
            assert ends == shard.extra_info[ELEM_COUNTS_PER_GB]

    @requirement("SHARD-05")
    @pytest.mark.parametrize("algorithm", PACKING_ALGORITHMS)
    @pytest.mark.parametrize("multiple", [1, 8])
    @settings(deadline=None, max_examples=40)
    @given(step=steps())
    def test_a_packed_one_has_the_tokens_of_its_rows_within_the_limit(
        self, algorithm: Any, multiple: int, step: tuple[KVBatchMeta, int, int]
    ) -> None:
        meta, dp_world, size = step
        packing = SequencePacking(LIMIT, algorithm, multiple)
        for shard in shard_meta_for_dp(meta, dp_world, size, sequence_packing=packing)[0]:
            tokens = [round_up(length, multiple) for length in shard.sequence_lengths or ()]
            costs = [[sum(tokens[row] for row in rows) for rows in batch] for batch in spans(shard)]
            assert shard.extra_info[MICRO_BATCH_LENGTHS] == costs
            assert max(map(max, costs)) <= LIMIT

    @requirement("SHARD-05")
    @pytest.mark.parametrize("multiple", [1, 16])
    @settings(deadline=None, max_examples=50)
    @given(step=steps())
    def test_a_dynamic_one_is_wide_enough_for_its_rows_and_within_the_limit(
        self, multiple: int, step: tuple[KVBatchMeta, int, int]
    ) -> None:
        meta, dp_world, size = step
        batching = DynamicBatching(2 * LIMIT, multiple)
        for shard in shard_meta_for_dp(meta, dp_world, size, dynamic_batching=batching)[0]:
            lengths: Any = shard.sequence_lengths
            widths = shard.extra_info[MICRO_BATCH_LENGTHS]
            for batch, width_of in zip(spans(shard), widths, strict=True):
                for rows, width in zip(batch, width_of, strict=True):
                    assert max(lengths[row] for row in rows) <= width
                    assert width % multiple == 0
                    assert len(rows) * width <= 2 * LIMIT

    @requirement("SHARD-05")
    @packed
    def test_long_rows_are_planned_as_long(self, mode: Settings) -> None:
        """With lengths clamped to 1 all rows would share a micro-batch, one token wide."""
        for shard in shard_meta_for_dp(meta_of([LIMIT] * 4), 2, **mode)[0]:
            planned = shard.extra_info[MICRO_BATCH_LENGTHS]
            assert all(length == LIMIT for batch in planned for length in batch)


class TestRejected:
    """SHARD-06: inputs that would give ranks unequal work."""

    @requirement("SHARD-06")
    @in_every_mode
    def test_an_empty_meta(self, mode: Settings) -> None:
        with pytest.raises(ValueError, match=r"^there are no rows to shard: .* others$"):
            shard_meta_for_dp(meta_of([]), 2, **mode)

    @requirement("SHARD-06")
    @in_every_mode
    def test_a_meta_without_lengths(self, mode: Settings) -> None:
        with pytest.raises(
            ValueError, match=r"^the meta has no sequence_lengths: put .* as kv_first_write does$"
        ):
            shard_meta_for_dp(replace(meta_of([1, 2]), sequence_lengths=None), 2, **mode)

    @requirement("SHARD-06")
    @in_every_mode
    def test_a_row_whose_length_is_missing(self, mode: Settings) -> None:
        unknown: Any = [1, None]
        with pytest.raises(ValueError, match="row 1"):
            shard_meta_for_dp(replace(meta_of([1, 2]), sequence_lengths=unknown), 2, **mode)

    @requirement("SHARD-06")
    @pytest.mark.parametrize(
        ("n_rows", "dp_world", "batch_size"),
        [(6, 4, None), (6, 4, 6), (12, 2, 3), (12, 2, 8), (4, 2, 8), (3, 4, None)],
    )
    @in_every_mode
    def test_a_batch_that_does_not_divide(
        self, n_rows: int, dp_world: int, batch_size: int | None, mode: Settings
    ) -> None:
        with pytest.raises(ValueError, match="multiple"):
            shard_meta_for_dp(meta_of([1] * n_rows), dp_world, batch_size, **mode)

    @requirement("SHARD-06")
    def test_it_is_told_how_many_rows_are_too_many(self) -> None:
        with pytest.raises(
            ValueError, match=r"12 rows .* batch_size 8; drop or keep back 4 of them"
        ):
            shard_meta_for_dp(meta_of([1] * 12), 2, 8)

    @requirement("SHARD-06")
    def test_both_packings_at_once(self) -> None:
        with pytest.raises(
            ValueError, match=r"^give sequence_packing or dynamic_batching, not both$"
        ):
            shard_meta_for_dp(
                meta_of([1, 2]),
                2,
                sequence_packing=SequencePacking(LIMIT),
                dynamic_batching=DynamicBatching(LIMIT),
            )

    @requirement("SHARD-06")
    @pytest.mark.parametrize("count", [0, -1])
    @pytest.mark.parametrize("name", ["dp_world", "batch_size"])
    def test_a_count_below_one(self, name: str, count: int) -> None:
        with pytest.raises(ValueError, match=f"^{name} must be"):
            shard_meta_for_dp(meta_of([1, 2]), **({"dp_world": 1} | {name: count}))

    @requirement("SHARD-06")
    @packed
    def test_a_row_that_is_over_the_limit_by_itself(self, mode: Settings) -> None:
        with pytest.raises(ValueError, match=r"row 3 .*max_tokens_per_microbatch"):
            shard_meta_for_dp(meta_of([1, 2, 3, 2 * LIMIT + 1]), 2, 2, **mode)

    @requirement("SHARD-06")
    @pytest.mark.parametrize(
        "mode",
        [
            {"sequence_packing": SequencePacking(60, sequence_length_pad_multiple=16)},
            {"dynamic_batching": DynamicBatching(60, sequence_length_round=16)},
        ],
        ids=["sequence packing", "dynamic batching"],
    )
    def test_a_row_that_is_over_the_limit_once_rounded_up(self, mode: Settings) -> None:
        """60 tokens would fit, but not the 64 after rounding; truncation would lose tokens."""
        with pytest.raises(ValueError, match=r"row 1 of 60 tokens takes 64"):
            shard_meta_for_dp(meta_of([1, 60]), 2, **mode)


class TestGlobalBatches:
    """SHARD-07: ranks execute one optimizer step after the other."""

    @requirement("SHARD-07")
    @in_every_mode
    @settings(deadline=None, max_examples=50)
    @given(step=steps())
    def test_a_global_batch_is_split_as_if_it_were_alone(
        self, mode: Settings, step: tuple[KVBatchMeta, int, int]
    ) -> None:
        meta, dp_world, size = step
        lengths: Any = meta.sequence_lengths
        alone = [
            plan_shards(lengths[start : start + size], dp_world, **mode)
            for start in range(0, meta.size, size)
        ]
        for rank, plan in enumerate(plan_shards(lengths, dp_world, size, **mode)):
            own = [of_batch[rank] for of_batch in alone]
            assert plan.rows == [n * size + row for n, part in enumerate(own) for row in part.rows]
            for key in PACKING_KEYS if mode else ():
                assert plan.packing[key] == [entry for part in own for entry in part.packing[key]]

    @requirement("SHARD-07")
    @in_every_mode
    def test_every_rank_works_on_the_same_global_batch_at_a_time(self, mode: Settings) -> None:
        """Long rows at the end must not move to an earlier step, nor short ones to a later one."""
        lengths = [LIMIT, 1, LIMIT, 1, 2, 2, 60, 2, 9, LIMIT, 9, 9]
        plans = plan_shards(lengths, 2, 4, **mode)
        for number in range(3):
            rows = [row for plan in plans for row in plan.rows if row // 4 == number]
            assert sorted(rows) == list(range(4 * number, 4 * number + 4))
        for plan in plans:
            steps_in_order = [row // 4 for row in plan.rows]
            assert steps_in_order == sorted(steps_in_order)
            assert set(steps_in_order) == {0, 1, 2}


def test_the_three_ways_to_share_out_a_step() -> None:
    """Two global batches of four rows, two ranks."""
    lengths = [5, 1, 4, 2, 3, 3, 6, 1]
    assert plan_shards(lengths, 2, 4) == [ShardPlan([0, 1, 4, 5]), ShardPlan([2, 3, 6, 7])]
    in_bins = plan_shards(lengths, 2, 4, sequence_packing=SequencePacking(8, "concatenative", 2))
    assert in_bins == [
        ShardPlan(
            [0, 1, 4, 5],
            {
                MICRO_BATCH_INDICES: [[[0, 2]], [[0, 2]]],
                MICRO_BATCH_LENGTHS: [[8], [8]],
                ELEM_COUNTS_PER_GB: [2, 2],
            },
        ),
        ShardPlan(
            [2, 3, 6, 7],
            {
                MICRO_BATCH_INDICES: [[[0, 2]], [[0, 2]]],
                MICRO_BATCH_LENGTHS: [[6], [8]],
                ELEM_COUNTS_PER_GB: [2, 2],
            },
        ),
    ]
    rounds = {
        MICRO_BATCH_INDICES: [[[0, 1], [1, 2]], [[0, 1], [1, 2]]],
        MICRO_BATCH_LENGTHS: [[2, 6], [4, 6]],
        ELEM_COUNTS_PER_GB: [2, 2],
    }
    assert plan_shards(lengths, 2, 4, dynamic_batching=DynamicBatching(8, 2)) == [
        ShardPlan([1, 2, 7, 5], rounds),
        ShardPlan([3, 0, 4, 6], rounds),
    ]


def test_ranks_may_differ_in_rows_but_not_in_microbatches() -> None:
    """One long row costs as much as four short ones."""
    plans = plan_shards([LIMIT, 16, 16, 16, 16, LIMIT], 3, sequence_packing=SequencePacking(LIMIT))
    assert [plan.packing[ELEM_COUNTS_PER_GB] for plan in plans] == [[1], [1], [4]]
    assert [plan.packing[MICRO_BATCH_LENGTHS] for plan in plans] == [[[LIMIT]]] * 3

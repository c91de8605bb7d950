"""Properties of sharding: each row is on one rank, order is restored, micro-batches are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Verbosity, assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.runner import SETTINGS
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import (
    ELEM_COUNTS_PER_GB,
    MICRO_BATCH_INDICES,
    MICRO_BATCH_LENGTHS,
    PACKING_KEYS,
)
from rlconform.plane.packing import PACKING_ALGORITHMS
from rlconform.plane.sharding import (
    DynamicBatching,
    SequencePacking,
    plan_shards,
    shard_meta_for_dp,
)

#: A failure shows the drawn values and the line that reproduces it.
MANY = settings(SETTINGS, max_examples=100, print_blob=True, verbosity=Verbosity.normal)


@dataclass(frozen=True)
class Case:
    """A batch to shard: its lengths and the settings."""

    lengths: list[int]
    dp_world: int
    batch_size: int
    packing: SequencePacking | None = None
    batching: DynamicBatching | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {"sequence_packing": self.packing, "dynamic_batching": self.batching}

    @property
    def meta(self) -> KVBatchMeta:
        ids = [f"r{i}" for i in range(len(self.lengths))]
        tags = [{"n": i, "input_lengths": length} for i, length in enumerate(self.lengths)]
        return KVBatchMeta("train", "t", ids, ["x"], list(self.lengths), {"width": 9}, tags)

    def rounded(self, length: int) -> int:
        """The tokens that a row uses after rounding."""
        multiple = 1
        if self.packing is not None:
            multiple = self.packing.sequence_length_pad_multiple
        if self.batching is not None:
            multiple = self.batching.sequence_length_round
        return -(-length // multiple) * multiple

    @property
    def limit(self) -> int:
        how = self.packing or self.batching
        assert how is not None
        return how.max_tokens_per_microbatch


@st.composite
def cases(draw: DrawFn, packed: bool = False) -> Case:
    """Batches of up to three global batches over up to four ranks; lengths may be equal or zero."""
    dp_world = draw(st.integers(1, 4))
    batch_size = dp_world * draw(st.integers(1, 5))
    n_rows = batch_size * draw(st.integers(1, 3))
    lengths = draw(st.lists(st.integers(0, 40), min_size=n_rows, max_size=n_rows))
    multiple = draw(st.sampled_from([1, 4, 8]))
    limit = -(-max(1, *lengths) // multiple) * multiple + draw(st.integers(0, 60))
    packing = st.builds(
        SequencePacking,
        st.just(limit),
        st.sampled_from(PACKING_ALGORITHMS),
        st.just(multiple),
        st.sampled_from(["packer", "largest_first"]),
        st.integers(0, 3),
    )
    batching = st.builds(DynamicBatching, st.just(limit), st.just(multiple))
    how = draw(packing | batching | (st.nothing() if packed else st.none()))
    return Case(
        lengths,
        dp_world,
        batch_size,
        how if isinstance(how, SequencePacking) else None,
        how if isinstance(how, DynamicBatching) else None,
    )


def sharded(case: Case) -> tuple[list[KVBatchMeta], list[int]]:
    return shard_meta_for_dp(case.meta, case.dp_world, case.batch_size, **case.options)


def microbatches(shard: KVBatchMeta) -> list[list[tuple[list[int], int]]]:
    """By global batch: each micro-batch's row lengths, and its length in the plan."""
    plans, start = [], 0
    extra = shard.extra_info
    for spans, lengths, count in zip(
        extra[MICRO_BATCH_INDICES],
        extra[MICRO_BATCH_LENGTHS],
        extra[ELEM_COUNTS_PER_GB],
        strict=True,
    ):
        held = (shard.sequence_lengths or [])[start : start + count]
        assert [first for first, _ in spans] + [count] == [0] + [last for _, last in spans]
        plans.append([(held[a:b], n) for (a, b), n in zip(spans, lengths, strict=True)])
        start += count
    assert start == shard.size
    return plans


@requirement("SHARD-01")
@MANY
@given(case=cases())
def test_every_row_goes_to_one_rank(case: Case) -> None:
    shards, _ = sharded(case)
    assert len(shards) == case.dp_world
    shared_out = [sample_id for shard in shards for sample_id in shard.sample_ids]
    assert sorted(shared_out) == sorted(case.meta.sample_ids)


@requirement("SHARD-02")
@MANY
@given(case=cases())
def test_the_inverse_puts_outputs_in_order(case: Case) -> None:
    shards, inverse = sharded(case)
    outputs = [sample_id for shard in shards for sample_id in shard.sample_ids]
    assert [outputs[i] for i in inverse] == case.meta.sample_ids


@requirement("SHARD-03")
@MANY
@given(case=cases())
def test_each_row_keeps_its_length_and_tags(case: Case) -> None:
    shards, _ = sharded(case)
    whole = case.meta
    for shard in shards:
        rows = [whole.sample_ids.index(sample_id) for sample_id in shard.sample_ids]
        expected = whole.subset(rows)
        assert (shard.sequence_lengths, shard.tags) == (expected.sequence_lengths, expected.tags)
        assert (shard.partition_id, shard.task_name, shard.fields) == ("train", "t", ["x"])
        kept = {k: v for k, v in shard.extra_info.items() if k not in PACKING_KEYS}
        assert kept == {"width": 9}


@requirement("SHARD-04")
@MANY
@given(case=cases(packed=True))
def test_every_rank_runs_as_many_microbatches(case: Case) -> None:
    shards, _ = sharded(case)
    counts = [[len(batch) for batch in microbatches(shard)] for shard in shards]
    assert counts == [counts[0]] * case.dp_world
    assert len(counts[0]) == len(case.lengths) // case.batch_size


@requirement("SHARD-05")
@MANY
@given(case=cases(packed=True))
def test_no_microbatch_is_over_its_limit(case: Case) -> None:
    shards, _ = sharded(case)
    for shard in shards:
        for rows, planned in (each for batch in microbatches(shard) for each in batch):
            taken = [case.rounded(length) for length in rows]
            if case.packing is not None:
                assert planned == sum(taken)
                assert planned <= case.limit
            else:
                assert planned >= max(taken)
                assert planned * len(rows) <= case.limit


@requirement("SHARD-06")
@MANY
@given(case=cases(), short=st.integers(1, 3))
def test_what_does_not_divide_is_refused(case: Case, short: int) -> None:
    size = case.batch_size + short
    assume(len(case.lengths) % size or size % case.dp_world)
    with pytest.raises(ValueError, match=r"multiple|evenly"):
        plan_shards(case.lengths, case.dp_world, size, **case.options)


@requirement("SHARD-07")
@MANY
@given(case=cases())
def test_global_batches_come_first_and_depend_on_their_own_rows_alone(case: Case) -> None:
    whole = plan_shards(case.lengths, case.dp_world, case.batch_size, **case.options)
    share = case.batch_size // case.dp_world
    for number, start in enumerate(range(0, len(case.lengths), case.batch_size)):
        lengths = case.lengths[start : start + case.batch_size]
        alone = plan_shards(lengths, case.dp_world, **case.options)
        even = [share] * (len(case.lengths) // case.batch_size)
        for plan, own in zip(whole, alone, strict=True):
            counts = plan.packing.get(ELEM_COUNTS_PER_GB, even)
            first = sum(counts[:number])
            held = plan.rows[first : first + counts[number]]
            assert [row - start for row in held] == own.rows

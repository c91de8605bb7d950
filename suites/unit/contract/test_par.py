"""PAR: each rank reads through the plane the same bytes that it would get in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.rollouts import SyntheticRollout, rollout_batch
from rlconform.certify.scenarios.sharding_parity import (
    PACKINGS,
    expect_batch,
    field_names,
    read_shard,
    split_both_ways,
)
from rlconform.contract.fields import INPUT_LENGTHS, PACKING_KEYS

#: Rows of one optimizer step; the rollout has two steps.
GLOBAL_BATCH = 32

packed = pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)


@pytest.fixture(scope="module")
def rollout() -> SyntheticRollout:
    return rollout_batch(
        16, 4, min_tokens=256, max_tokens=4096, width_multiple=64, image_shape=(3, 4, 4)
    )


@pytest.fixture
def step(
    new_partition: Callable[..., PartitionUnderTest], rollout: SyntheticRollout
) -> PartitionUnderTest:
    return new_partition(fields=field_names(rollout.columns), num_samples=len(rollout.sample_ids))


@requirement("PAR-01")
@packed
def test_each_rank_reads_what_it_would_get_in_memory(
    step: PartitionUnderTest, rollout: SyntheticRollout, packing: Mapping[str, Any]
) -> None:
    for rank, shard, (batch, _) in split_both_ways(step, rollout, GLOBAL_BATCH, packing):
        got = read_shard(step.client, shard, field_names(batch), rollout.pad_values)
        expect_batch(got, batch, rank)


@requirement("PAR-02")
@packed
def test_each_rank_gets_the_packing_plan_it_would_get_in_memory(
    step: PartitionUnderTest, rollout: SyntheticRollout, packing: Mapping[str, Any]
) -> None:
    for rank, shard, (batch, plan) in split_both_ways(step, rollout, GLOBAL_BATCH, packing):
        got = {key: shard.extra_info[key] for key in PACKING_KEYS if key in shard.extra_info}
        expect_equal(got, plan, f"packing metadata of {rank}:")
        expect_equal(shard.sequence_lengths, batch[INPUT_LENGTHS].tolist(), f"lengths of {rank}:")

"""PAR across processes: ranks in separate processes read at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.rollouts import SyntheticRollout, rollout_batch
from rlconform.certify.scenarios.sharding_parity import (
    DP_WORLD,
    PACKINGS,
    expect_batch,
    field_names,
    read_shard,
    split_both_ways,
)
from rlconform.certify.threads import run_concurrently
from rlconform.contract import DataPlaneClient

#: Rows of one optimizer step; the rollout has two steps.
GLOBAL_BATCH = 32


@pytest.fixture(scope="module")
def rollout() -> SyntheticRollout:
    return rollout_batch(16, 4, seed=1, min_tokens=256, max_tokens=4096, width_multiple=64)


@pytest.mark.large
@requirement("PAR-01")
@pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)
def test_ranks_in_processes_read_what_they_would_get_in_memory(
    rollout: SyntheticRollout,
    new_partition: Callable[..., PartitionUnderTest],
    actors: Callable[[int], list[DataPlaneClient]],
    packing: Mapping[str, Any],
) -> None:
    fields = field_names(rollout.columns)
    part = new_partition(fields=fields, num_samples=len(rollout.sample_ids))
    split = list(split_both_ways(part, rollout, GLOBAL_BATCH, packing))
    reads = [
        partial(read_shard, client, shard, fields, rollout.pad_values)
        for client, (_, shard, _) in zip(actors(DP_WORLD), split, strict=True)
    ]
    got = run_concurrently(reads, part.timeouts.check, "rank")
    for batch, (rank, _, (expected, _)) in zip(got, split, strict=True):
        expect_batch(batch, expected, rank)

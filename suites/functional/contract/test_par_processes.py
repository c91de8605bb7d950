"""PAR with every rank in a process of its own, reading at the same time as the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from rlconform.certify.evidence.together import together
from rlconform.certify.marks import requirement
from rlconform.certify.scenes.parity import (
    DP_WORLD,
    PACKINGS,
    expect_batch,
    field_names,
    read_shard,
    split_both_ways,
)
from rlconform.certify.scenes.partition import Partition
from rlconform.certify.scenes.rollouts import Rollout, rollout_batch
from rlconform.contract import DataPlaneClient

#: Rows of one optimizer step; the rollout has two.
GLOBAL_BATCH = 32


@pytest.fixture(scope="module")
def rollout() -> Rollout:
    return rollout_batch(16, 4, seed=1, min_tokens=256, max_tokens=4096, width_multiple=64)


@requirement("PAR-01")
@pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)
def test_ranks_in_processes_read_what_they_would_get_in_memory(
    rollout: Rollout,
    new_partition: Callable[..., Partition],
    actors: Callable[[int], list[DataPlaneClient]],
    packing: Mapping[str, Any],
) -> None:
    fields = field_names(rollout.columns)
    part = new_partition(fields=fields, num_samples=len(rollout.sample_ids))
    split = split_both_ways(part, rollout, GLOBAL_BATCH, packing)
    reads = [
        partial(read_shard, rank, shard, fields, rollout.pad_values)
        for rank, shard in zip(actors(DP_WORLD), split.shards, strict=True)
    ]
    came = together(reads, part.timeouts.check, "rank")
    for rank, (batch, (expected, _)) in enumerate(zip(came, split.in_memory, strict=True)):
        expect_batch(batch, expected, f"rank {rank}")

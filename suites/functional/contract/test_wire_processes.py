"""WIRE across processes: readers pad to one width what other processes wrote by the codec."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.codec_round_trip import (
    STEP_FIELDS,
    StepBatch,
    expect_logs_rebuilt,
    write_with_logs,
)
from rlconform.certify.scenarios.labeled_rows import random_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.rollouts import SyntheticRollout, rollout_batch
from rlconform.certify.threads import run_concurrently
from rlconform.contract import DataPlaneClient, KVBatchMeta, Target
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN

Actors = Callable[[int], list[DataPlaneClient]]
RANKS = 3


@pytest.fixture
def part(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """Return a partition with the columns of a training step."""
    return new_partition(fields=STEP_FIELDS)


def shards_by_length(step: StepBatch, rollout: SyntheticRollout) -> list[KVBatchMeta]:
    """Split rows equally among the ranks; the first rank gets the shortest rows."""
    order = sorted(range(step.meta.size), key=rollout.lengths.__getitem__)
    each = len(order) // RANKS
    return [step.meta.subset(order[r * each : (r + 1) * each]) for r in range(RANKS)]


@requirement("WIRE-01")
def test_a_process_reads_padded_what_another_wrote(
    part: PartitionUnderTest, actors: Actors
) -> None:
    collector, reader = (part.via(actor) for actor in actors(2))
    rollout = rollout_batch(4, 4, seed=10, aborted=2, width_multiple=16)
    step = StepBatch(collector, rollout.sample_ids, rollout.columns, tags=rollout.tags)
    fields = [str(name) for name in rollout.columns.keys()]  # noqa: SIM118 - a TensorDict
    for via in (reader, part):
        step.expect_padded(rollout.sample_ids[::-1], fields, 80, rollout.pad_values, via)


@requirement("WIRE-02")
def test_ranks_read_unequal_shards_at_one_width(part: PartitionUnderTest, actors: Actors) -> None:
    rollout = rollout_batch(3, 4, seed=11)
    width = -(-max(rollout.lengths) // 16) * 16
    info = {GLOBAL_FORWARD_PAD_SEQLEN: width}
    step = StepBatch(part, rollout.sample_ids, rollout.columns, extra_info=info)

    def read(via: PartitionUnderTest, shard: KVBatchMeta) -> int:
        due = shard.extra_info[GLOBAL_FORWARD_PAD_SEQLEN]
        fields = ["input_ids", "generation_logprobs", "token_mask"]
        batch = step.expect_padded(shard.sample_ids, fields, due, rollout.pad_values, via)
        return int(batch["input_ids"].shape[1])

    ranks = [part.via(actor) for actor in actors(RANKS)]
    jobs = zip(ranks, shards_by_length(step, rollout), strict=True)
    widths = run_concurrently([partial(read, *job) for job in jobs], part.timeouts.check, "rank")
    expect_equal(widths, [width] * RANKS, "the ranks' widths")


@requirement("WIRE-03")
def test_one_reader_reads_write_backs_of_different_widths(
    part: PartitionUnderTest, actors: Actors
) -> None:
    """Each rank rounds up the length of its longest row, as sequence parallelism requires."""
    rollout = rollout_batch(3, 4, seed=12, aborted=1)
    step = StepBatch(part, rollout.sample_ids, rollout.columns)
    ranks = [part.via(actor) for actor in actors(RANKS)]

    def write(rank: int, shard: KVBatchMeta) -> None:
        lengths = shard.sequence_lengths or []
        width = (max(lengths) // 8 + 1) * 8
        wide = torch.stack(random_rows(torch.float32, [(width,)] * shard.size, rank))
        step.write_back(shard, ranks[rank], prev_logprobs=wide)

    calls = [partial(write, *job) for job in enumerate(shards_by_length(step, rollout))]
    run_concurrently(calls, part.timeouts.check, "rank")
    for via in (part, ranks[0]):
        fields, pads = ["prev_logprobs", "input_ids"], {"prev_logprobs": -2.5, "input_ids": 7}
        step.expect_padded(rollout.sample_ids, fields, pads=pads, via=via)


@requirement("WIRE-04")
def test_images_written_by_another_process_stay_rectangular(
    part: PartitionUnderTest, actors: Actors
) -> None:
    collector, reader = (part.via(actor) for actor in actors(2))
    rollout = rollout_batch(2, 4, seed=13, image_shape=(3, 4, 6))
    step = StepBatch(collector, rollout.sample_ids, rollout.columns)
    fields = ["pixel_values", "input_ids"]
    for ids in (rollout.sample_ids[::-1], rollout.sample_ids[2:5]):
        step.expect_padded(ids, fields, 64, rollout.pad_values, reader)


@requirement("WIRE-06")
def test_message_logs_written_by_another_process_are_rebuilt(
    part: PartitionUnderTest, actors: Actors, target: Target
) -> None:
    collector, reader = (part.via(actor) for actor in actors(2))
    rollout = rollout_batch(3, 2, seed=14, aborted=1)
    step = write_with_logs(collector, target, rollout)
    expect_logs_rebuilt(step, rollout, rollout.sample_ids[::-1], 64, reader)

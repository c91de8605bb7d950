"""FLOW: a collector puts rows, the driver filters and clears them by tags, and ranks read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tensordict import TensorDict

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_equal,
    leaf_of,
    rows_in,
    same_object,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.rollout_pipeline import MESSAGE_LOGS, PipelineRecord, run_pipeline
from rlconform.certify.scenarios.sharding_parity import expect_batch, reorder_rows
from rlconform.contract import DataPlaneClient, Target
from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS
from rlconform.wire import rebuild_message_logs
from rlconform.wire.message_logs import MessageLog

DP_WORLD = 2

Flow = Callable[..., PipelineRecord]


@pytest.fixture
def flow(
    part: PartitionUnderTest,
    target: Target,
    recording: Recording,
    actors: Callable[[int], list[DataPlaneClient]],
) -> Flow:
    """Return a function that runs the pipeline, with message logs if the target stores objects."""

    def run(with_logs: bool = target.declares("objects") is True) -> PipelineRecord:
        collector, *ranks = actors(1 + DP_WORLD)
        return run_pipeline(part, recording, collector, ranks, with_logs)

    return run


@requirement("FLOW-01")
def test_tags_and_lengths_are_returned_with_their_own_rows(flow: Flow) -> None:
    record = flow()
    tags = dict(zip(record.written.sample_ids, record.written.tags, strict=True))
    lengths = {i: row[INPUT_LENGTHS] for i, row in tags.items()}
    metas = {f"claim {n}": claim.meta for n, claim in enumerate(record.claims)}
    metas |= {f"the shard of rank {rank}": shard for rank, shard in enumerate(record.shards)}
    for what, meta in metas.items():
        expect_own(tags_by_id(meta), tags, f"the tags of {what}")
        got = dict(zip(meta.sample_ids, meta.sequence_lengths or [], strict=True))
        expect_own(got, lengths, f"the lengths of {what}")
    for rank, (shard, batch) in enumerate(zip(record.shards, record.batches, strict=True)):
        column = [length.tolist() for length in rows_in(batch, INPUT_LENGTHS)]
        expect_equal(column, shard.sequence_lengths, f"lengths read by rank {rank}:")


def expect_own(got: Mapping[str, Any], own: Mapping[str, Any], what: str) -> None:
    """Check that each row in ``got`` equals the expected row in ``own``."""
    wrong = [i for i, value in got.items() if value != own.get(i)]
    shown = "".join(f"; {i} has {got[i]}, not {own.get(i)}" for i in wrong[:1])
    expect(not wrong, f"{what} beside their own rows", f"{len(wrong)} beside others{shown}")


@requirement("FLOW-02")
def test_fresh_rows_are_selected_by_their_tags_alone(flow: Flow) -> None:
    record = flow()
    for claim in record.claims:
        expect(not claim.calls, "no client call between a claim and the decision", claim.calls)
    expect_ids(record.kept, record.fresh, "rows kept:")


@requirement("FLOW-03")
def test_kept_and_dropped_rows_are_those_claimed(flow: Flow) -> None:
    record = flow()
    claimed = Counter(i for claim in record.claims for i in claim.meta.sample_ids)
    decided = Counter([*record.kept.sample_ids, *record.dropped])
    expect(decided == claimed, f"kept and dropped to be {sorted(claimed.elements())}", decided)
    written = Counter(record.written.sample_ids)
    expect(
        claimed == written,
        "each row written to be claimed once",
        f"lost {sorted((written - claimed).elements())}, "
        f"too many {sorted((claimed - written).elements())}",
    )
    expect_equal(
        record.consumed,
        {
            "before the claims": False,
            "after the claims": True,
            "of a task that claimed nothing": False,
        },
        "consumption status",
    )


@requirement("FLOW-04")
def test_dropped_rows_are_gone_and_kept_ones_readable_by_every_rank(flow: Flow) -> None:
    record = flow()
    for rank, (shard, batch) in enumerate(zip(record.shards, record.batches, strict=True)):
        expect_as_written(record, batch, shard.sample_ids, f"rank {rank}, before the clear")
    for view in record.views:
        reader = f"{view.who}, after the clear"
        kept = read_by(reader, view.kept)
        expect_as_written(record, kept, record.kept.sample_ids, reader)
        expect(not view.dropped, f"no dropped row readable by {view.who}", view.dropped)
    expect_equal(
        sorted(record.claimable), sorted(record.kept.sample_ids), "rows claimable by a second task"
    )


def expect_as_written(
    record: PipelineRecord, batch: TensorDict, ids: list[str], reader: str
) -> None:
    """Check that ``batch`` has the rows ``ids`` with the collector's values."""
    written = reorder_rows(record.written.columns, record.written.sample_ids, ids)
    expect_batch(batch, written, reader)


@requirement("FLOW-05")
def test_message_logs_reach_every_rank(flow: Flow) -> None:
    record = flow(True)
    logs = dict(zip(record.written.sample_ids, record.written.message_logs, strict=True))
    for rank, (shard, batch) in enumerate(zip(record.shards, record.logs, strict=True)):
        got = logs_in(read_by(f"rank {rank}", batch), f"rank {rank}")
        expect_equal(len(got), len(shard.sample_ids), f"message logs read by rank {rank}:")
        for sample_id, log in zip(shard.sample_ids, got, strict=True):
            expect(
                same_object(log, logs[sample_id]),
                f"rank {rank} to read the message log of {sample_id}, {logs[sample_id]}",
                log,
            )


def logs_in(batch: TensorDict, reader: str) -> list[MessageLog]:
    """Return the message logs of the batch, with their token ids restored."""
    try:
        return rebuild_message_logs(leaf_of(batch, MESSAGE_LOGS), leaf_of(batch, INPUT_IDS))
    except (TypeError, ValueError) as error:
        got = f"{leaf_of(batch, MESSAGE_LOGS)}: {error}"
        raise ContractViolation(f"{reader} to read message logs", shorten(got)) from error


def read_by(reader: str, got: TensorDict | Exception) -> TensorDict:
    """Return what a process read; raise a violation if its read failed."""
    if isinstance(got, Exception):
        shown = f"{type(got).__name__}: {got}"
        raise ContractViolation(f"{reader} to read its rows", shown) from got
    return got

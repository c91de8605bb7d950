"""``run_pipeline``: rollouts written in one process, filtered in another, read in many.

    collector   writes a stale and a fresh rollout ──put──▶ plane
    driver      claims both ◀──meta── plane, filters them by their tags, and shards the kept rows
    ranks       read their shards ◀──get── plane
    driver      clears the dropped rows ──clear──▶ plane
    all         read the kept rows again, and try to read the dropped ones

Each step waits for the step above. ``run_pipeline`` only records what happened; each check judges
one part of that record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from tensordict import TensorDict, TensorDictBase

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.rollouts import SyntheticRollout, rollout_batch
from rlconform.certify.scenarios.sharding_parity import (
    TASK,
    Unreadable,
    claim_rows,
    field_names,
    first_write,
    read_shard,
    reorder_rows,
    split_claim,
)
from rlconform.certify.threads import run_concurrently
from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import INPUT_IDS
from rlconform.grpo.rollout.staleness_filter import (
    FilterResult,
    RolloutFilterError,
    StalenessFilter,
)
from rlconform.wire import strip_message_logs

#: Weight versions of the trainer and of both rollouts; one version behind is fresh enough.
CURRENT, FRESH, STALE, MAX_STALENESS = 6, 5, 3, 1

#: Rows of a rollout, and sizes of the claims; in order of puts the first claim spans both rollouts.
PROMPTS, GROUP_SIZE = 2, 4
CLAIM_SIZES = (10, 6)

#: Width in tokens to which all readers pad.
WIDTH = 64

#: A task that claims nothing until the end.
IDLE_TASK = "prev_lp"

MESSAGE_LOGS = "message_logs"

T = TypeVar("T")


@dataclass(frozen=True)
class ClaimedRows:
    """A claim of the driver and the filter's decision."""

    meta: KVBatchMeta
    split: FilterResult
    calls: list[str]  # client calls between the claim and the decision


@dataclass(frozen=True)
class ProcessView:
    """What one process can read after the dropped rows are cleared."""

    who: str
    kept: TensorDict | Exception  # rows in the order of the step's meta, or the error of the read
    dropped: list[str]  # ids that can still be read


@dataclass(frozen=True)
class PipelineRecord:
    """All results of one run of the pipeline."""

    written: SyntheticRollout  # the rows of both rollouts, as the collector wrote them
    fresh: list[str]  # ids of the fresh rollout
    claims: list[ClaimedRows]  # the driver's, in order
    kept: KVBatchMeta  # of all rows that the filter kept
    dropped: list[str]  # ids of all rows that it dropped
    shards: list[KVBatchMeta]  # of each rank
    batches: list[TensorDict]  # the tensors that each rank read
    #: ``INPUT_IDS`` and ``MESSAGE_LOGS`` as each rank read them, or the error of the read; empty if
    #: no logs were written.
    logs: list[TensorDict | Exception]
    consumed: dict[str, bool]  # ``check_consumption_status`` by moment
    views: list[ProcessView]  # what each process can read after the clear
    claimable: list[str]  # ids that the idle task claims after the clear


def run_pipeline(
    part: PartitionUnderTest,
    recording: Recording,
    collector: DataPlaneClient,
    ranks: Sequence[DataPlaneClient],
    with_logs: bool,
) -> PipelineRecord:
    """Run the pipeline once; judge only what its next step needs.

    ``part`` is a fresh partition as the driver sees it. The collector and each DP rank are clients
    in other processes. ``with_logs`` writes each row's message log, as an object column.

    Raises:
        ContractViolation: A claim returned too few rows or no tags for the filter, or the kept
            rows can't be split.
    """
    stale, fresh = _rollout(1, STALE), _rollout(2, FRESH)
    for rollout in (stale, fresh):
        column = {MESSAGE_LOGS: strip_message_logs(rollout.message_logs)} if with_logs else {}
        first_write(part, collector, rollout, **column)

    tensors = field_names(fresh.columns)
    fields = [*tensors, MESSAGE_LOGS] if with_logs else tensors
    consumed = {"before the claims": part.consumed(TASK)}
    claims = [_claim(part, recording, fields, size) for size in CLAIM_SIZES]
    consumed["after the claims"] = part.consumed(TASK)
    consumed["of a task that claimed nothing"] = part.consumed(IDLE_TASK)
    first, *others = (claim.split.kept for claim in claims)
    kept = first.concat(*others)
    dropped = [sample_id for claim in claims for sample_id in claim.split.dropped.sample_ids]

    shards, _ = split_claim(kept, len(ranks))
    read = partial(read_shard, pads=fresh.pad_values)
    rank_reads = [partial(read, rank, shard) for rank, shard in zip(ranks, shards, strict=True)]
    batches = run_concurrently(
        [partial(r, tensors) for r in rank_reads], part.timeouts.check, "rank"
    )
    with_ids = [INPUT_IDS, MESSAGE_LOGS]
    logs = [_attempt(partial(r, with_ids)) for r in rank_reads] if with_logs else []

    part.clear(dropped)
    processes = {"the driver": part.client, "the collector": collector}
    processes |= {f"rank {number}": rank for number, rank in enumerate(ranks)}
    view_reads = [
        partial(_view, who, part.via(client), partial(read, client, kept, tensors), dropped)
        for who, client in processes.items()
    ]
    return PipelineRecord(
        written=_joined(stale, fresh),
        fresh=fresh.sample_ids,
        claims=claims,
        kept=kept,
        dropped=dropped,
        shards=shards,
        batches=batches,
        logs=logs,
        consumed=consumed,
        views=run_concurrently(view_reads, part.timeouts.check, "process"),
        claimable=part.claim_all(IDLE_TASK, [INPUT_IDS]),
    )


def _rollout(seed: int, weight_version: int) -> SyntheticRollout:
    """Build a shuffled rollout whose rows have their id as a tag."""
    made = rollout_batch(
        PROMPTS, GROUP_SIZE, seed, weight_version=weight_version, width_multiple=WIDTH
    )
    order = Random(seed).sample(range(len(made.sample_ids)), len(made.sample_ids))
    ids = [made.sample_ids[row] for row in order]
    return SyntheticRollout(
        sample_ids=ids,
        columns=reorder_rows(made.columns, made.sample_ids, ids),
        tags=[{**made.tags[row], "uid": made.sample_ids[row]} for row in order],
        message_logs=[made.message_logs[row] for row in order],
    )


def _joined(*rollouts: SyntheticRollout) -> SyntheticRollout:
    """Join rollouts of equal width into one rollout."""
    return SyntheticRollout(
        sample_ids=[i for rollout in rollouts for i in rollout.sample_ids],
        columns=TensorDict.cat([rollout.columns for rollout in rollouts]),
        tags=[tags for rollout in rollouts for tags in rollout.tags],
        message_logs=[log for rollout in rollouts for log in rollout.message_logs],
    )


def _claim(
    part: PartitionUnderTest, recording: Recording, fields: Sequence[str], size: int
) -> ClaimedRows:
    """Claim rows, and filter them by staleness."""
    before = len(recording.calls)
    meta = claim_rows(part, fields, size, WIDTH)
    try:
        split = StalenessFilter(MAX_STALENESS, CURRENT).split(meta)
    except RolloutFilterError as error:
        raise ContractViolation(
            "tags on every claimed row by which the staleness filter can decide", str(error)
        ) from error
    return ClaimedRows(meta, split, [call.text for call in recording.calls[before + 1 :]])


def _view(
    who: str, view: PartitionUnderTest, read_kept: Callable[[], TensorDict], dropped: Sequence[str]
) -> ProcessView:
    """Read the kept rows in one call, and each dropped row in a separate call."""
    reads = {i: _attempt(partial(view.get, [i], INPUT_IDS)) for i in dropped}
    return ProcessView(
        who, _attempt(read_kept), [i for i, result in reads.items() if _has_rows(result)]
    )


def _attempt(read: Callable[[], T]) -> T | Exception:
    """Return what ``read`` returns, or the error that the plane raised."""
    try:
        return read()
    except Unreadable as error:
        return error
    except ContractViolation:
        raise  # it hung, or its process ended
    except Exception as error:  # noqa: BLE001 - a plane may raise anything
        return error


def _has_rows(result: TensorDictBase | Exception) -> bool:
    """Whether a read of ``INPUT_IDS`` returned any row; GET-06 judges how a read is refused."""
    if isinstance(result, Exception):
        return False
    return INPUT_IDS in field_names(result) and result.batch_size.numel() > 0

"""The collector flow: rollouts written in one process, judged in another, read in many.

    collector   writes a stale and a fresh rollout ──put──▶ plane
    driver      claims both ◀──meta── plane, keeps or drops by tags alone, and shards what it keeps
    ranks       read their shards ◀──get── plane
    driver      clears the dropped rows ──clear──▶ plane
    everybody   reads the kept rows once more, and tries the dropped ones

Each waits for the one above. ``run_pipeline`` only records what happened; each check judges one
part of that record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from tensordict import TensorDict, TensorDictBase

from rlconform.certify.assertions.values import ContractViolation
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
from rlconform.grpo.rollout.filters import FilterResult, RolloutFilterError, StalenessFilter
from rlconform.wire import strip_message_logs

#: Weight versions of the trainer and of the two rollouts; one version behind is still fresh.
CURRENT, FRESH, STALE, MAX_STALENESS = 6, 5, 3, 1

#: Rows of a rollout, and of the claims: where the oldest come first, the first spans both rollouts.
PROMPTS, GROUP_SIZE = 2, 4
CLAIM_SIZES = (10, 6)

#: Width in tokens to which all readers pad.
WIDTH = 64

#: A task that claims nothing until the flow is over.
IDLE_TASK = "prev_lp"

MESSAGE_LOGS = "message_logs"

T = TypeVar("T")


@dataclass(frozen=True)
class ClaimedRows:
    """A claim of the driver and what its filter made of it.

    ``calls`` are the client calls that anybody made from the one to the other.
    """

    meta: KVBatchMeta
    split: FilterResult
    calls: list[str]


@dataclass(frozen=True)
class ProcessView:
    """What one process sees of the step once the dropped rows are cleared.

    ``kept`` holds the kept rows in the order of the step's meta, or the error that came in their
    place; ``dropped`` the ids of dropped rows that can still be read.
    """

    who: str
    kept: TensorDict | Exception
    dropped: list[str]


@dataclass(frozen=True)
class PipelineRecord:
    """All that happened in one run of the flow.

    Attributes:
        written: Both rollouts as the collector wrote them, one after the other.
        fresh: Ids of the fresh one.
        claims: The driver's claims, in order.
        kept: Meta of all rows that the filter kept.
        dropped: Ids of all others.
        shards: Meta of each rank.
        batches: The tensors that each rank read by it.
        logs: ``INPUT_IDS`` and ``MESSAGE_LOGS`` as each rank read them, or the error that came in
            their place; empty where no logs went along.
        consumed: ``check_consumption_status`` by moment: of the claiming task before and after
            its claims, and of the idle one after them.
        views: What each process sees after the clear.
        claimable: Ids that the idle task is handed after the clear.
    """

    written: SyntheticRollout
    fresh: list[str]
    claims: list[ClaimedRows]
    kept: KVBatchMeta
    dropped: list[str]
    shards: list[KVBatchMeta]
    batches: list[TensorDict]
    logs: list[TensorDict | Exception]
    consumed: dict[str, bool]
    views: list[ProcessView]
    claimable: list[str]


def run_pipeline(
    part: PartitionUnderTest,
    recording: Recording,
    collector: DataPlaneClient,
    ranks: Sequence[DataPlaneClient],
    with_logs: bool,
) -> PipelineRecord:
    """Run the flow once; nothing is judged but what it can't go on without.

    Args:
        part: A fresh partition, seen by the driver.
        recording: Where the clients note their calls.
        collector: A client attached in another process.
        ranks: One more in a process of its own for each DP rank.
        with_logs: Each row's message log goes along, as an object column.

    Raises:
        ContractViolation: A claim came short or without what the filter decides by, or what it
            kept can't be split.
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
    of_ranks = [partial(read, rank, shard) for rank, shard in zip(ranks, shards, strict=True)]
    batches = run_concurrently([partial(r, tensors) for r in of_ranks], part.timeouts.check, "rank")
    with_ids = [INPUT_IDS, MESSAGE_LOGS]
    logs = [_attempt(partial(r, with_ids)) for r in of_ranks] if with_logs else []

    part.clear(dropped)
    processes = {"the driver": part.client, "the collector": collector}
    processes |= {f"rank {number}": rank for number, rank in enumerate(ranks)}
    looks = [
        partial(_look, who, part.via(client), partial(read, client, kept, tensors), dropped)
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
        views=run_concurrently(looks, part.timeouts.check, "process"),
        claimable=part.claim_all(IDLE_TASK, [INPUT_IDS]),
    )


def _rollout(seed: int, weight_version: int) -> SyntheticRollout:
    """A rollout in no order of its ids, whose rows say in their tags whose these are."""
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
    """The rows of all, which are of one width."""
    return SyntheticRollout(
        sample_ids=[i for rollout in rollouts for i in rollout.sample_ids],
        columns=TensorDict.cat([rollout.columns for rollout in rollouts]),
        tags=[tags for rollout in rollouts for tags in rollout.tags],
        message_logs=[log for rollout in rollouts for log in rollout.message_logs],
    )


def _claim(
    part: PartitionUnderTest, recording: Recording, fields: Sequence[str], size: int
) -> ClaimedRows:
    """Claim rows, and decide which to train on."""
    before = len(recording.calls)
    meta = claim_rows(part, fields, size, WIDTH)
    try:
        split = StalenessFilter(MAX_STALENESS, CURRENT).split(meta)
    except RolloutFilterError as unsure:
        raise ContractViolation(
            "tags on every claimed row by which the staleness filter can decide", str(unsure)
        ) from unsure
    return ClaimedRows(meta, split, [call.text for call in recording.calls[before + 1 :]])


def _look(
    who: str, view: PartitionUnderTest, read_kept: Callable[[], TensorDict], dropped: Sequence[str]
) -> ProcessView:
    """Read the kept rows in one go, and each dropped one by itself."""
    tries = {i: _attempt(partial(view.get, [i], INPUT_IDS)) for i in dropped}
    return ProcessView(
        who, _attempt(read_kept), [i for i, came in tries.items() if _has_rows(came)]
    )


def _attempt(read: Callable[[], T]) -> T | Exception:
    """What ``read`` returns, or the error by which the plane refuses."""
    try:
        return read()
    except Unreadable as error:
        return error
    except ContractViolation:
        raise  # it hung, or its process died: no answer at all
    except Exception as error:  # noqa: BLE001 - a plane may raise anything
        return error


def _has_rows(came: TensorDictBase | Exception) -> bool:
    """Whether a read of ``INPUT_IDS`` gave any row; GET-06 judges how one is refused."""
    if isinstance(came, Exception):
        return False
    return INPUT_IDS in field_names(came) and came.batch_size.numel() > 0

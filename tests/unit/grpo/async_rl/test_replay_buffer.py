"""The replay buffer: slots, states, drops, promotion, and its cost per group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from rlconform.contract import KVBatchMeta
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.errors import BufferFull, DuplicateGroup, TornGroupRecord, UnknownGroup
from rlconform.grpo.replay.samplers import WeightFifoSampler
from rlconform.grpo.replay.slots import DropReason, GroupRecord, Prompt, Slot
from rlconform.grpo.rollout.worker import RowSummary
from rlconform.grpo.tasks import Problem
from rlconform.plane import mint_sample_ids

G = 2
ROWS = (RowSummary(1.0, ((1, 2),), False, ((0, 0),)), RowSummary(0.0, ((1, 2),), False, ((0, 0),)))


def prompt(number: int, step: int | None = None) -> Prompt:
    return Prompt(Problem(f"p{number}", (), ""), number, 0, step)


def record(group_id: str, end: int | None = 0) -> GroupRecord:
    return GroupRecord(KVBatchMeta("train", None, mint_sample_ids([group_id], G)), ROWS, end)


class Cleared(list[str]):
    """The ids of cleared rows."""

    async def clear(self, ids: list[str]) -> None:
        self.extend(ids)


@pytest.fixture
def cleared() -> Cleared:
    return Cleared()


@pytest.fixture
def buffer(cleared: Cleared) -> ReplayBuffer:
    return ReplayBuffer(4, G, "train", cleared.clear)


def ready(buffer: ReplayBuffer, number: int, step: int | None = None, start: int = 0) -> str:
    group_id = buffer.reserve(prompt(number, step), start)
    buffer.commit(group_id, record(group_id, start))
    return group_id


def test_a_group_goes_through_its_states(buffer: ReplayBuffer) -> None:
    group_id = buffer.reserve(prompt(0), weight_version=3)
    assert (buffer.size, buffer.ready_count, buffer.reserved_starts()) == (1, 0, [3])
    buffer.commit(group_id, record(group_id, 4))
    assert (buffer.ready_count, buffer.reserved_starts()) == (1, [])
    (slot,) = buffer.take([group_id])
    assert buffer.ready_count == 0
    assert (slot.start_version, slot.versions(consumed=5).end) == (3, 4)
    buffer.mark_trained([group_id])
    assert buffer.size == 1, "the slot is free only when the engines have the new weights"
    assert buffer.release_trained() == 1
    assert (buffer.size, buffer.fates["trained"]) == (0, 1)


def test_a_full_buffer_refuses_and_a_drop_makes_room(
    buffer: ReplayBuffer, cleared: Cleared
) -> None:
    ids = [ready(buffer, number) for number in range(4)]
    with pytest.raises(BufferFull):
        buffer.reserve(prompt(9), 0)
    asyncio.run(buffer.remove_group(ids[1], DropReason.STALE))
    assert buffer.reserve(prompt(9), 0) == "p9"
    assert cleared == ["p1_g0", "p1_g1"]
    assert buffer.fates == {"stale": 1}


def test_a_waiter_gets_the_slot_that_a_drop_frees(buffer: ReplayBuffer) -> None:
    ids = [ready(buffer, number) for number in range(4)]

    async def run() -> int:
        waiting = asyncio.ensure_future(buffer.wait_for_slot())
        await asyncio.sleep(0)
        assert not waiting.done()
        await buffer.remove_group(ids[0], DropReason.STALE)
        await waiting
        return buffer.size

    assert asyncio.run(run()) == 3


@pytest.mark.parametrize(
    ("ids", "summaries", "end"),
    [
        (["p0_g0"], ROWS, 5),
        (["p0_g1", "p0_g0"], ROWS, 5),
        (["p1_g0", "p1_g1"], ROWS, 5),
        (["p0_g0", "p0_g1"], ROWS[:1], 5),
        (["p0_g0", "p0_g1"], ROWS, None),
        (["p0_g0", "p0_g1"], ROWS, 1),
    ],
    ids=["short", "order", "foreign", "summaries", "no version", "version before start"],
)
def test_a_torn_record_is_refused(
    buffer: ReplayBuffer, ids: list[str], summaries: Sequence[RowSummary], end: int | None
) -> None:
    group_id = buffer.reserve(prompt(0), 2)
    torn = GroupRecord(KVBatchMeta("train", None, ids), tuple(summaries), end)
    with pytest.raises(TornGroupRecord):
        buffer.commit(group_id, torn)
    assert buffer.ready_count == 0


def test_each_step_of_a_group_is_made_once(buffer: ReplayBuffer) -> None:
    group_id = ready(buffer, 0)
    with pytest.raises(DuplicateGroup):
        buffer.reserve(prompt(0), 0)
    with pytest.raises(UnknownGroup):
        buffer.commit(group_id, record(group_id))
    buffer.take([group_id])
    with pytest.raises(UnknownGroup):
        buffer.take([group_id])
    buffer.mark_trained([group_id])
    with pytest.raises(UnknownGroup):
        asyncio.run(buffer.remove_group(group_id, DropReason.STALE))


def test_a_commit_after_a_drop_is_refused(buffer: ReplayBuffer) -> None:
    group_id = buffer.reserve(prompt(0), 0)
    asyncio.run(buffer.remove_group(group_id, DropReason.INFRA_FAILURE))
    with pytest.raises(UnknownGroup):
        buffer.commit(group_id, record(group_id))


def test_the_earliest_group_of_the_next_step_is_promoted(buffer: ReplayBuffer) -> None:
    ready(buffer, 3, step=2)
    late = ready(buffer, 2, step=1)
    early = ready(buffer, 1, step=1)
    promoted = buffer.promote_ready_group(to_target_step=0)
    assert isinstance(promoted, Slot)
    assert promoted.group_id == early
    assert buffer.ready_of_step(0) == [early]
    assert buffer.ready_of_step(1) == [late]
    assert [buffer.count_for_target_step(step) for step in (0, 1, 2)] == [1, 1, 1]
    assert buffer.promote_ready_group(to_target_step=2) is None


def test_drops_are_told_after_the_slot_is_free(buffer: ReplayBuffer) -> None:
    sizes = []
    buffer.on_drop = lambda slot, reason: sizes.append((slot.group_id, reason, buffer.size))
    asyncio.run(buffer.remove_group(ready(buffer, 0), DropReason.STALE))
    assert sizes == [("p0", DropReason.STALE, 0)]


def seconds_per_group(groups: int) -> float:
    """Time reserve, commit, select, train and release of groups beside ``groups`` ready ones."""

    async def run() -> float:
        buffer = ReplayBuffer(groups + 1000, G, "train", Cleared().clear)
        sampler = WeightFifoSampler(buffer, window=10)
        for number in range(groups):
            ready(buffer, number, start=5)
        best = float("inf")
        for part in range(5):
            started = time.process_time()
            for number in range(1000):
                ready(buffer, groups + 1000 * part + number, start=4)
            taken = 0
            while taken < 1000:
                meta, count = await sampler.select(
                    current_train_weight=6, min_prompt_groups=1, max_prompt_groups=10
                )
                assert meta is not None
                taken += count
                buffer.mark_trained({sample.partition("_")[0] for sample in meta.sample_ids})
            buffer.release_trained()
            best = min(best, (time.process_time() - started) / 1000)
        return best

    return asyncio.run(run())


def test_the_cost_of_a_group_is_flat_in_the_size_of_the_buffer() -> None:
    small, large = seconds_per_group(100), seconds_per_group(100_000)
    assert large < 3 * small, f"{small:.2e} s with 100 groups, {large:.2e} s with 100,000"

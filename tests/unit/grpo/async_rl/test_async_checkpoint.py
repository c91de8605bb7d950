"""The asynchronous part of a checkpoint: what fits is restored, what doesn't is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.checkpoint import SavedRun
from rlconform.grpo.replay.errors import RestoreError
from rlconform.grpo.simulation.engines import GROUP
from rlconform.grpo.simulation.loop import simulate
from rlconform.grpo.simulation.world import World
from rlconform.grpo.trainers.async_controller import AsyncController, RunSize

FITS: dict[str, Any] = {
    "expected_partition_id": "train", "expected_group_size": GROUP,
}  # fmt: skip


@pytest.fixture(scope="module")
def saved() -> SavedRun:
    """A run of two prompts per step after its first step: two groups ready, two waiting."""
    config = AsyncRLConfig.model_validate(
        {"sampler": {"name": "in_order", "max_lookahead_versions": 2}, "max_buffered_rollouts": 6,
         "max_inflight_prompts": 4, "min_groups_for_streaming_train": 2,
         "in_flight_weight_updates": True}
    )  # fmt: skip
    world = World(lambda group_id: 20.0 if group_id == "p4" else 1.0, train_s=1.5)

    async def run() -> SavedRun:
        with world.begin_part():
            world.start_workers()
            controller = AsyncController(config, RunSize(2, GROUP, 9, "train"), world.ports())
            await controller.step()
            state = controller.saved()
            await controller.close()
            await world.end_part()
        return state

    return simulate(run())


def test_a_saved_run_comes_back_whole(saved: SavedRun) -> None:
    assert SavedRun.parse(saved.dump(), **FITS) == saved
    assert len(saved.groups) + len(saved.unfinished) + 2 == saved.dispatched
    assert {prompt.group_id for prompt in saved.unfinished} >= {"p4"}
    assert saved.groups, "some groups are ready"


def test_without_rows_every_prompt_is_dispatched_again(saved: SavedRun) -> None:
    lost = saved.without_rows()
    assert not lost.groups
    numbers = [prompt.sequence for prompt in lost.unfinished]
    assert numbers == list(range(2, saved.dispatched))
    assert lost.fates["restart"] == len(saved.groups)


@pytest.mark.parametrize(
    "changes",
    [{"expected_group_size": 4}, {"expected_partition_id": "other"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    saved: SavedRun, changes: dict[str, Any]
) -> None:
    with pytest.raises(RestoreError):
        SavedRun.parse(saved.dump(), **FITS | changes)


def test_a_buffer_that_is_too_small_refuses_the_groups(saved: SavedRun) -> None:
    buffer = ReplayBuffer(len(saved.groups) - 1, GROUP, "train", World(lambda _: 1.0).clear_rows)
    with pytest.raises(RestoreError, match="max_buffered_rollouts"):
        buffer.load_state_dict(saved.groups)
    assert buffer.size == 0


@pytest.mark.parametrize("field", ["groups", "unfinished", "dispatched", "lost", "format"])
def test_a_missing_field_is_refused_by_name(saved: SavedRun, field: str) -> None:
    tree = json.loads(saved.dump())
    del tree[field]
    with pytest.raises(RestoreError, match=field):
        SavedRun.parse(json.dumps(tree), **FITS)


def test_a_cut_file_is_refused(saved: SavedRun) -> None:
    with pytest.raises(RestoreError):
        SavedRun.parse(saved.dump()[:-20], **FITS)

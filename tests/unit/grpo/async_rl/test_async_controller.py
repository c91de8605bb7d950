"""Whole asynchronous runs on a simulated clock: every sampler with every kind of trouble."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.replay.slots import Failure

from .simulated_run import Faults, World, check_run, run_steps

PROMPTS, STEPS = 4, 8
SAMPLERS: dict[str, dict[str, Any]] = {
    "in_order": {"name": "in_order", "max_lookahead_versions": 1},
    "windowed": {"name": "windowed", "max_staleness_versions": 1},
    "windowed_freshest": {
        "name": "windowed", "max_staleness_versions": 1, "sample_freshest_first": True,
    },
    "ready_first": {"name": "ready_first", "max_staleness_versions": 1},
    "weight_fifo": {"name": "weight_fifo", "max_staleness_versions": 1},
}  # fmt: skip


def config(sampler: dict[str, Any], **options: Any) -> AsyncRLConfig:
    defaults = {
        "sampler": sampler,
        "min_groups_for_streaming_train": PROMPTS,
        "max_inflight_prompts": 2 * PROMPTS,
        "max_buffered_rollouts": 2 * PROMPTS,
        "rollout_failure": {"max_skipped_prompts": 0},
    }
    return AsyncRLConfig.model_validate(defaults | options)


def uneven(group_id: str) -> float:
    """Seconds of a generation: from 0.2 to 3, so that a step's groups straddle a weight sync."""
    return 0.2 + 2.8 * Random(group_id).random()


TROUBLES: dict[str, dict[str, Any]] = {
    "no fault": {},
    "retry across a sync": {"failing": ("p1", "p5", "p6")},
    "in flight < prompts": {"max_inflight_prompts": PROMPTS // 2},
    "chunked select": {"min_groups_for_streaming_train": 1},
    "restart": {"restarts": (3, 5)},
    "restart without rows": {"restarts": (3,), "checkpoint_rows": False},
    "partial rollouts": {"partial_rollouts": True},
    "in-flight weight updates": {"in_flight_weight_updates": True},
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_gets_through(sampler: str, trouble: str) -> None:
    options = dict(TROUBLES[trouble])
    failing, restarts = options.pop("failing", ()), options.pop("restarts", ())
    world = World(uneven, faults=Faults(dict.fromkeys(failing, Failure.INFRA)))
    outcome = run_steps(
        config(SAMPLERS[sampler], **options), world, prompts=PROMPTS, steps=STEPS, restarts=restarts
    )
    check_run(outcome, bound=1, steps=STEPS)
    assert outcome.error is None
    assert len(world.trained) == PROMPTS * STEPS
    assert world.most_inflight <= options.get("max_inflight_prompts", 2 * PROMPTS)

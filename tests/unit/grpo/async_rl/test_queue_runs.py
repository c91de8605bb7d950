"""Whole runs over a trajectory queue on a simulated clock, with every kind of trouble."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlconform.check_run.judge import judge_run
from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.replay.slots import Failure

from .simulated_log import SimulatedLog
from .simulated_run import Faults, Outcome, World, check_run, run_steps
from .test_async_controller import PROMPTS, STEPS, TROUBLES, uneven
from .test_run_events import not_clean

#: Options of the queue; the periods divide the number of steps, the restarts are at a sync.
QUEUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "on policy": {"staleness_threshold": 0.0},
    "half a step ahead": {"staleness_threshold": 0.5},
    "sync every second step": {"trigger_parameter_sync_step": 2, "staleness_threshold": 0.5},
    "small queue": {"capacity": 4},
    "small queue that refuses": {"capacity": 4, "on_full": "refuse", "staleness_threshold": 2},
    "strict": {"staleness_threshold": 2.0, "max_staleness_versions": 1},
}


def queue_config(queue: dict[str, Any], **options: Any) -> AsyncRLConfig:
    defaults = {
        "transport": "queue",
        "queue": queue,
        "min_groups_for_streaming_train": PROMPTS,
        "max_inflight_prompts": 2 * PROMPTS,
        "rollout_failure": {"max_infra_attempts_per_prompt": 20},
    }
    return AsyncRLConfig.model_validate(defaults | options)


def counts_add_up(outcome: Outcome) -> None:
    """What was accepted was got or dropped, and the queue is empty and closed."""
    assert outcome.world.queue is not None
    counts = asyncio.run(outcome.world.queue.queue.statistics())
    assert counts.accepted == counts.got + counts.size + sum(counts.dropped.values())
    assert (counts.size, counts.waiting_puts, counts.waiting_gets) == (0, 0, 0)


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("queue", QUEUES)
def test_every_queue_gets_through_with_a_clean_log(
    queue: str, trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(TROUBLES[trouble])
    failing, restarts = options.pop("failing", ()), options.pop("restarts", ())
    config = queue_config(QUEUES[queue], **options)
    every = config.queue.trigger_parameter_sync_step
    world = World(
        uneven,
        faults=Faults(dict.fromkeys(failing, Failure.INFRA)),
        log=SimulatedLog(tmp_path, monkeypatch),
    )
    outcome = run_steps(
        config, world, prompts=PROMPTS, steps=STEPS,
        restarts=[step - step % every for step in restarts],
    )  # fmt: skip
    assert outcome.error is None
    check_run(outcome, config.queue.bound(PROMPTS), STEPS)
    counts_add_up(outcome)
    assert len(world.trained) == PROMPTS * STEPS
    report = judge_run([tmp_path])
    assert not_clean(report) == []
    assert report.overview.fates["trained"] == PROMPTS * STEPS

"""Whole runs over a trajectory queue on a simulated clock, with every kind of trouble."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest

from rlconform.check_run.judge import judge_run
from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.queue.queue_client import QueueLost
from rlconform.grpo.replay.budget import TooManySkippedPrompts
from rlconform.grpo.replay.slots import Failure
from rlconform.grpo.simulation.log import SimulatedLog
from rlconform.grpo.simulation.run import SimulatedOutcome, run_steps
from rlconform.grpo.simulation.scenario import TROUBLES, Scenario, uneven
from rlconform.grpo.simulation.world import Faults, World
from rlconform.grpo.tasks import Problem

from .checked_run import check_run
from .test_async_controller import PROMPTS, STEPS

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


def queue_options(queue: dict[str, Any], **options: Any) -> dict[str, Any]:
    failures = {"max_infra_attempts_per_prompt": 20}  # each refused put is one
    return {"transport": "queue", "queue": queue, "rollout_failure": failures} | options


def queue_config(queue: dict[str, Any], **options: Any) -> AsyncRLConfig:
    return Scenario(options=queue_options(queue, **options)).config()


def counts_add_up(outcome: SimulatedOutcome) -> None:
    """What was accepted was got or dropped, and the queue is empty and closed."""
    assert outcome.queue is not None
    counts = asyncio.run(outcome.queue.statistics())
    assert counts.accepted == counts.got + counts.size + sum(counts.dropped.values())
    assert (counts.size, counts.waiting_puts, counts.waiting_gets) == (0, 0, 0)


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("queue", QUEUES)
def test_every_queue_gets_through_with_a_clean_log(
    queue: str, trouble: str, tmp_path: Path
) -> None:
    how = dict(TROUBLES[trouble])
    every = QUEUES[queue].get("trigger_parameter_sync_step", 1)
    restarts = tuple(step - step % every for step in how.pop("restarts", ()))
    options = queue_options(QUEUES[queue], **how.pop("options", {}))
    scenario = Scenario(options=options, restarts=restarts, **how)
    outcome = scenario.run(tmp_path)
    assert outcome.error is None
    check_run(outcome, scenario.config().queue.bound(PROMPTS), STEPS)
    counts_add_up(outcome)
    assert len(outcome.world.trained) == PROMPTS * STEPS
    report = judge_run([tmp_path])
    assert report.not_clean() == []
    assert report.overview.fates["trained"] == PROMPTS * STEPS


@pytest.mark.parametrize("queue", ["defaults", "small queue", "sync every second step"])
@pytest.mark.parametrize("second", [0.0, 1.5, 4.0])
def test_the_death_of_the_queue_ends_the_run_at_once(
    queue: str, second: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(uneven, faults=Faults(queue_dies_at=second), log=SimulatedLog(tmp_path))
    with pytest.raises(QueueLost, match="has died"):
        run_steps(queue_config(QUEUES[queue]), world, prompts=PROMPTS, steps=STEPS)
    records = [
        json.loads(line)
        for path in tmp_path.iterdir()
        for line in path.read_text("utf-8").splitlines()
    ]
    times = {record["event"]["type"]: record["mono_ns"] / 1e9 for record in records}
    assert times["run_finished"] - times["run_started"] <= second + 4 * world.queue_s + 0.1
    assert not world.workers.in_flight(), "nothing is being generated any more"
    assert not world.rows, "what was open is dropped, and its rows are cleared"
    gc.collect()
    unseen = [one.getMessage() for one in caplog.records if one.name == "asyncio"]
    assert unseen == [], "the error is raised once, and asyncio prints no other"


def test_prompts_that_are_skipped_make_the_last_step_short() -> None:
    """The trainer waits for a whole step when a prompt of it is given up, and takes fewer."""
    failing = {f"p{PROMPTS * STEPS - 1}": Failure.DATA, f"p{PROMPTS * STEPS - 2}": Failure.DATA}
    world = World(lambda name: 30.0 if name in failing else 0.5, faults=Faults(dict(failing)))
    failures = {
        "max_data_attempts_per_prompt": 1, "max_skipped_prompts": 2, "min_step_batch_fraction": 0.5,
    }  # fmt: skip
    config = queue_config({}, rollout_failure=failures, in_flight_weight_updates=True)
    outcome = run_steps(config, world, prompts=PROMPTS, steps=STEPS)
    check_run(outcome, 1, STEPS)
    counts_add_up(outcome)
    assert outcome.metrics[-1]["idle/trainer/no_ready_groups_s"] > 10, "it waited in a get"
    assert [metrics["step/groups"] for metrics in outcome.metrics][-2:] == [PROMPTS, PROMPTS - 2]


def test_too_many_skipped_prompts_end_the_run_typed() -> None:
    world = World(uneven, faults=Faults({"p3": Failure.MODEL, "p3-r1": Failure.MODEL}))
    outcome = run_steps(queue_config({}), world, prompts=PROMPTS, steps=STEPS)
    assert isinstance(outcome.error, TooManySkippedPrompts)


def test_a_group_that_is_overtaken_gets_too_old_and_is_generated_anew() -> None:
    """A slow group is overtaken: it is dropped wherever it is, and its prompt is trained once."""
    world = World(lambda name: 9.0 if name == "p2" else 0.4)
    config = queue_config({}, in_flight_weight_updates=True)
    outcome = run_steps(config, world, prompts=PROMPTS, steps=STEPS)
    check_run(outcome, 1, STEPS)
    counts_add_up(outcome)
    assert outcome.controller is not None
    assert outcome.controller.buffer.fates["aborted_stale"] == 1
    assert {name for _, name in world.trained if name.startswith("p2-")} == {"p2-r1"}


def test_a_refusing_queue_counts_what_it_refuses() -> None:
    config = queue_config(QUEUES["small queue that refuses"])
    outcome = run_steps(config, World(lambda _: 0.2, train_s=5.0), prompts=PROMPTS, steps=STEPS)
    check_run(outcome, config.queue.bound(PROMPTS), STEPS)
    assert outcome.controller is not None
    overload = outcome.controller.buffer.fates["overload"]
    assert overload == outcome.metrics[-1]["queue/refused/full"] >= 1


def test_eleven_prompts_of_ten_problems_are_dispatched_and_trained_on() -> None:
    """The last prompt is the first of the second epoch; none is left out, and none comes twice."""
    world = World(uneven)

    def ten(count: int) -> list[Problem]:
        first, world.position = world.position, world.position + count
        return [Problem(f"e{i // 10}p{i % 10}", (), "") for i in range(first, world.position)]

    world.take_problems = ten  # type: ignore[method-assign]
    outcome = run_steps(
        queue_config({}, min_groups_for_streaming_train=1), world, prompts=1, steps=11
    )
    check_run(outcome, 1, 11)
    counts_add_up(outcome)
    assert outcome.controller is not None
    assert outcome.controller.pump.queue.dispatched == 11
    assert {group_id for _, group_id in world.trained} == {*(f"e0p{i}" for i in range(10)), "e1p0"}


def test_weights_are_published_when_they_are_due_and_after_the_last_step() -> None:
    config = queue_config({"trigger_parameter_sync_step": 3})
    outcome = run_steps(config, World(uneven), prompts=PROMPTS, steps=STEPS)
    check_run(outcome, config.queue.bound(PROMPTS), STEPS)
    versions = [metrics["rollout/weight_version"] for metrics in outcome.metrics]
    assert versions == [0, 0, 3, 3, 3, 6, 6, 8]
    assert outcome.world.engine_version == STEPS

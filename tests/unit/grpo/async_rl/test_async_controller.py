"""Whole asynchronous runs on a simulated clock: every sampler with every kind of trouble."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

from rlconform.contract import ConfigError, KVBatchMeta
from rlconform.grpo.config.async_rl import AsyncRLConfig, CustomSamplerConfig
from rlconform.grpo.failures import WorkerDied, WorkerLost
from rlconform.grpo.queue.queue_client import QueueLost
from rlconform.grpo.replay.budget import TooManySkippedPrompts
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.samplers import WindowedSampler
from rlconform.grpo.replay.slots import Failure, Slot
from rlconform.grpo.rollout.prompt_queue import DataloaderFailed
from rlconform.grpo.rollout.pump import AttemptFailed
from rlconform.grpo.simulation.engines import GROUP
from rlconform.grpo.simulation.loop import SimulatedLoop
from rlconform.grpo.simulation.run import run_steps
from rlconform.grpo.simulation.scenario import SAMPLERS, TROUBLES, Scenario, uneven
from rlconform.grpo.simulation.world import Faults, World
from rlconform.grpo.tasks import Problem
from rlconform.grpo.trainers.async_controller import AsyncController, RunSize, cancel_others
from rlconform.grpo.trainers.stall_watchdog import StallError
from rlconform.grpo.trainers.train_pump import StalenessViolation
from rlconform.plane import mint_sample_ids

from .checked_run import check_run

PROMPTS, STEPS = 4, 8


def config(sampler: Mapping[str, Any], **options: Any) -> AsyncRLConfig:
    return Scenario(options={"sampler": sampler, **options}).config()


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_gets_through(sampler: str, trouble: str) -> None:
    scenario = Scenario(sampler=sampler, **TROUBLES[trouble])
    outcome = scenario.run(None)
    check_run(outcome, bound=1, steps=STEPS)
    assert outcome.error is None
    assert len(outcome.world.trained) == PROMPTS * STEPS
    assert outcome.world.most_inflight <= scenario.config().max_inflight_prompts


def test_a_prompt_whose_rewards_fail_again_is_skipped() -> None:
    world = World(uneven, faults=Faults(dict.fromkeys(("p1", "p1-r1"), Failure.REWARD)))
    outcome = run_steps(config(SAMPLERS["in_order"]), world, prompts=PROMPTS, steps=STEPS)
    assert isinstance(outcome.error, TooManySkippedPrompts)
    assert "1 prompts have no attempts left (1 reward)" in str(outcome.error)


class LosesAnAnswer(World):
    """The rows of the first attempt of ``p1`` are in the plane, and its worker heard nothing."""

    async def generate(self, problem: Problem, group_id: str, partial: object) -> object:
        result = await super().generate(problem, group_id, partial)
        if group_id == "p1":
            assert self.rows.issuperset(mint_sample_ids(["p1"], GROUP))
            raise AttemptFailed(Failure.INFRA, "PlaneUnavailable: no answer from the plane")
        return result


@pytest.mark.parametrize("transport", ["buffer", "queue"])
def test_rows_of_a_put_without_an_answer_are_cleared_by_the_driver(transport: str) -> None:
    options = Scenario(options={"transport": transport}).config()
    outcome = run_steps(options, LosesAnAnswer(uneven), prompts=PROMPTS, steps=STEPS)
    assert outcome.error is None
    assert outcome.world.starts.keys() >= {"p1", "p1-r1"}
    assert not outcome.world.rows


class FailsInAStep(World):
    """Its policy workers raise in the first chunk."""

    error: Exception
    undone = 0

    async def chunk(self, slots: Sequence[Slot], meta: KVBatchMeta) -> None:  # noqa: ARG002
        raise self.error

    async def undo(self) -> None:
        self.undone += 1


@pytest.mark.parametrize(
    ("error", "undone"),
    [(WorkerDied("a policy worker"), 0), (WorkerLost("no answer"), 0), (ConnectionError("it"), 1)],
)
def test_a_lost_policy_worker_is_not_called_again(error: Exception, undone: int) -> None:
    """Otherwise the run would wait for ``cluster.timeout_s`` a second time."""
    world = FailsInAStep(uneven)
    world.error = error
    with pytest.raises(type(error)):
        run_steps(config(SAMPLERS["in_order"]), world, prompts=PROMPTS, steps=STEPS)
    assert world.undone == undone


def test_a_pump_that_fails_with_the_step_leaves_no_error_unseen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As when the trajectory queue dies: rollouter and trainer both have a call in it."""
    options, size = config(SAMPLERS["in_order"]), RunSize(PROMPTS, GROUP, STEPS, "train")

    async def fail(*_: Any) -> None:
        raise QueueLost("the trajectory queue has died")

    async def run() -> None:
        controller = AsyncController(options, size, World(uneven).ports())
        controller.pump.run = fail  # type: ignore[method-assign]
        controller._train.step = fail  # type: ignore[method-assign, assignment]
        with pytest.raises(QueueLost):
            await controller.step()
        await cancel_others(1.0)

    asyncio.run(run())
    gc.collect()
    assert [one.getMessage() for one in caplog.records if one.name == "asyncio"] == []


@pytest.mark.parametrize("fault", ["raises", "too few"])
def test_a_dead_dataloader_ends_the_run_with_a_typed_error(fault: str) -> None:
    world = World(uneven)
    take = world.take_problems

    def failing(count: int) -> list[Problem]:
        if world.position < 2 * PROMPTS:
            return take(count)
        if fault == "raises":
            raise OSError("the disk is gone")
        return take(count)[:-1]

    world.take_problems = failing  # type: ignore[method-assign]
    with pytest.raises(DataloaderFailed):
        run_steps(config(SAMPLERS["in_order"]), world, prompts=PROMPTS, steps=STEPS)


def test_a_generation_that_is_given_up_ends_in_its_worker_too() -> None:
    """Otherwise it takes up the engine until its end, and puts rows that nobody clears."""
    scenario = Scenario(
        seconds_of=lambda group_id: 5000.0 if group_id == "p1" else 1.0,
        options={"max_inflight_prompts": 1, "rollout_failure": {"generation_timeout_s": 30}},
        steps=2,
    )
    outcome = scenario.run(None)
    assert outcome.error is None
    assert (1, "p1-r1") in [(step + 1, group_id) for step, group_id in outcome.world.trained]
    assert outcome.world.most_inflight == 1


def test_a_failed_transfer_ends_the_run() -> None:
    world = World(uneven, faults=Faults(transfers={2}))
    with pytest.raises(ConnectionError):
        run_steps(config(SAMPLERS["windowed"]), world, prompts=PROMPTS, steps=STEPS)
    assert world.updates == 2


def test_a_chunk_that_fails_is_undone_and_ends_the_run() -> None:
    world = World(uneven, faults=Faults(chunks={3}))
    options = config(SAMPLERS["in_order"], min_groups_for_streaming_train=2)
    with pytest.raises(ConnectionError):
        run_steps(options, world, prompts=PROMPTS, steps=STEPS)
    assert not world.pending
    assert world.updates == 1


@pytest.mark.parametrize("failing", [False, True])
def test_no_task_of_a_run_that_is_given_up_is_left(failing: bool) -> None:
    """Pumps, generations and the watchdog are pending between two steps, and after an error."""
    world = World(uneven, faults=Faults(transfers={2} if failing else set()))
    options = config(SAMPLERS["windowed"], in_flight_weight_updates=True)

    async def steps() -> None:
        controller = AsyncController(
            options, RunSize(PROMPTS, GROUP, STEPS, "train"), world.ports()
        )
        world.start_workers()
        for _ in range(2):
            await controller.step()

    loop = SimulatedLoop()
    with world.begin_part(), asyncio.Runner(loop_factory=lambda: loop) as runner:
        if failing:
            with pytest.raises(ConnectionError):
                runner.run(steps())
        else:
            runner.run(steps())
        pending = asyncio.all_tasks(loop)
        assert any("watch()" in repr(task) for task in pending)
        assert any("RolloutPump" in repr(task) for task in pending)
        runner.run(cancel_others(10.0))
        assert asyncio.all_tasks(loop) == set()
        assert all(task.done() for task in pending)


class Nobody(WindowedSampler):
    """Never selects a group."""

    def _choose(self, version: int, most: int) -> list[str]:  # noqa: ARG002
        return []


class Stale(WindowedSampler):
    """Says that its bound is 0, and doesn't hold it."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        super().__init__(buffer, window=9)
        self.max_staleness = 0


def custom(name: str) -> AsyncRLConfig:
    target = {"name": "custom", "target": f"{__name__}:{name}"}
    return config(target, in_flight_weight_updates=True)


def test_the_watchdog_ends_a_run_whose_ready_groups_nobody_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())
    options = custom("Nobody").model_copy(
        update={"sampler": CustomSamplerConfig(name="custom", target=f"{__name__}:Nobody",
                                               options={"window": 1})}
    )  # fmt: skip
    outcome = run_steps(options, World(uneven), prompts=PROMPTS, steps=STEPS)
    assert isinstance(outcome.error, StallError)
    assert "8 groups are ready and nobody takes them; nothing is in flight" in str(outcome.error)


def test_the_sweep_catches_a_sampler_that_breaks_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())
    with pytest.raises(StalenessViolation):
        run_steps(custom("Stale"), World(uneven), prompts=PROMPTS, steps=STEPS)


def _this_module() -> ModuleType:
    """Return this module, which pytest's importlib mode may have left out of ``sys.modules``."""
    module = ModuleType(__name__)
    module.__dict__.update(globals())
    return module


@pytest.mark.parametrize("target", ["no_such_module:Sampler", "json:JSONDecoder", "json:nothing"])
def test_a_custom_sampler_that_can_not_be_used_is_refused(target: str) -> None:
    options = config({"name": "custom", "target": target})
    with pytest.raises(ConfigError, match=target):
        run_steps(options, World(uneven), prompts=PROMPTS, steps=STEPS)

"""Attempts, budgets and drops: prompts that come again wrongly, or never."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rlconform.grpo.config.async_rl import RolloutFailureConfig
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.slots import DropReason, Failure, Prompt, Slot
from rlconform.grpo.rollout.prompt_queue import PromptQueue
from rlconform.grpo.rollout.pump import RolloutPump
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.simulation.scenario import Scenario
from rlconform.grpo.trainers.weight_sync import WeightSync
from rlconform.mutants.async_trainer.defect import trainer_defect
from rlconform.mutants.async_trainer.timings import half_slow, one_overdue, quick

_INFRA = Failure.INFRA
_P5_FAILS = {"p5": _INFRA}


@trainer_defect(
    "exactly_once", evidence="a higher attempt or a new name", seen="NeMo-RL, verl#7037",
    when=Scenario(failing=_P5_FAILS, options={"rollout_failure": {
        "max_infra_attempts_per_prompt": 3, "max_skipped_prompts": 5,
        "min_step_batch_fraction": 0.5}}),
)  # fmt: skip
class AttemptNotRaised(PromptQueue):
    """Dispatches a failed prompt again under the name of the failed attempt."""

    def _end_backoff(self, prompt: Prompt) -> None:
        super()._end_backoff(prompt)
        self._again[-1] = replace(self._again[-1], attempt=0)


@trainer_defect(
    "liveness", evidence="expected an update every", seen="miles#2030, miles#3334",
    when=Scenario(
        seconds_of=quick, failing={"p5": _INFRA, **{f"p5-r{n}": _INFRA for n in range(1, 100)}},
        options={"rollout_failure": {"generation_timeout_s": 30},
                 "stall_watchdog": {"interval": 5, "stall_timeout": 60}},
    ),
    may="bias",
)  # fmt: skip
class RetriedWithoutBudget(PromptQueue):
    """Forgets the failures of a prompt, so it is tried again for ever."""

    def _retry_or_skip(self, slot: Slot, failure: Failure) -> None:
        super()._retry_or_skip(replace(slot, prompt=replace(slot.prompt, failures=())), failure)


@trainer_defect("accounting", evidence="got neither", seen="verl#6975, prime-rl#3050",
    when=Scenario(sampler="ready_first", failing=_P5_FAILS))  # fmt: skip
class DroppedSilently(RunEvents):
    """Drops a failed group and says nothing of it."""

    def dropped(self, group_ids: Iterable[str], cause: str) -> None:
        if cause != DropReason.INFRA_FAILURE.value:
            super().dropped(group_ids, cause)


@trainer_defect(
    "liveness", evidence="nothing is generated", seen="slime#2399",
    when=Scenario(failing=_P5_FAILS),
)  # fmt: skip
class WorkerFailureSwallowed(ReplayBuffer):
    """Takes no note of a failed generation: its slot stays, and nobody tries it again."""

    async def remove_group(
        self, group_id: str, reason: DropReason, remove_in_dp: bool = True
    ) -> None:
        if reason is not DropReason.INFRA_FAILURE:
            await super().remove_group(group_id, reason, remove_in_dp)


@trainer_defect(
    "liveness", evidence="nothing is generated", seen="NeMo-RL#3730, NeMo-RL",
    when=Scenario(failing=_P5_FAILS, options={"rollout_failure": {
        "max_infra_attempts_per_prompt": 1, "max_skipped_prompts": 5,
        "min_step_batch_fraction": 0.5}}),
)  # fmt: skip
class ShortStepWaits(PromptQueue):
    """Skips a prompt and doesn't make its step smaller, so the step waits for ever."""

    def add_lost(self, step: int | None) -> None:
        self._changed.notify()


@trainer_defect(
    "bias", evidence="expected dropped groups to have no more", seen="tinker#822, NeMo-RL#3599",
    when=Scenario(
        sampler="windowed", seconds_of=half_slow, steps=20, options={
            "max_buffered_rollouts": 12, "max_inflight_prompts": 12, "rollout_failure": {
            "on_dropped_prompt": "replace", "max_stale_attempts_per_prompt": 1,
            "max_skipped_prompts": 1000, "min_step_batch_fraction": 0.1}}),
)  # fmt: skip
class SlowPromptsDropped(WeightSync):
    """Drops whatever isn't ready when a step is done: the slow prompts, each time."""

    async def publish(self, version: int, bump: Any) -> int:
        self._pump.abort(sorted(self._pump.generating()), DropReason.ABORTED_STALE)
        return await super().publish(version, bump)


@trainer_defect("completeness", evidence="does not end with log_closed", seen="slime#2399, ray",
    when=Scenario(sampler="ready_first", deaths=("p6",)))  # fmt: skip
class ProcessLostNotReported(RunEvents):
    """Goes on without a worker that has died, and doesn't say so."""

    def lost(self, sources: Iterable[Any], reason: str) -> None:
        """Say nothing."""


@trainer_defect(
    "liveness", evidence="to end within 100 s", seen="NeMo-RL#3837",
    when=Scenario(seconds_of=one_overdue, options={
        "rollout_failure": {"generation_timeout_s": 100},
        "stall_watchdog": {"interval": 5, "stall_timeout": 400}}),
)  # fmt: skip
class DeadlineIgnored(RolloutPump):
    """Waits for a generation as long as it takes."""

    async def _generate_in_time(self, problem: Any, group_id: str, partial: Any) -> Any:
        patient: RolloutFailureConfig = self._options.failures.model_copy(
            update={"generation_timeout_s": 1e6}
        )
        self._options = replace(self._options, failures=patient)
        return await super()._generate_in_time(problem, group_id, partial)

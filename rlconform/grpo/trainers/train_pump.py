"""``TrainPump``: one training step over ready groups, as they come.

    select ── waits for ready groups ──▶ chunk ──▶ gradients added up ──▶ select ... ──▶ finish
                                            └─ the sweep: no group beyond the sampler's bound

A step trains on ``prompts_per_step`` groups. Of prompts that were skipped, a group of a later step
takes the place if one is ready (``in_order`` alone has steps), otherwise the step is smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from rlconform.contract import KVBatchMeta
from rlconform.grpo.algorithm.advantages import group_of
from rlconform.grpo.config.async_rl import RolloutFailureConfig
from rlconform.grpo.failures import WorkerLost
from rlconform.grpo.replay.budget import check_step_size
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.errors import DuplicateGroup
from rlconform.grpo.replay.idle import IdleClock
from rlconform.grpo.replay.samplers import StalenessSampler
from rlconform.grpo.replay.slots import Slot
from rlconform.grpo.replay.versions import GroupVersions, staleness
from rlconform.grpo.rollout.prompt_queue import PromptQueue


class StalenessViolation(RuntimeError):
    """A group that is to be trained on is staler than its sampler's bound."""


class TrainSteps(Protocol):
    """What the pump does with groups: a step's gradients are added up chunk by chunk."""

    async def begin(self) -> None:
        """Begin a step."""
        ...

    async def chunk(self, slots: Sequence[Slot], meta: KVBatchMeta) -> None:
        """Add the gradients of these groups."""
        ...

    async def finish(self) -> None:
        """Update the weights, and clear the step's rows in the plane."""
        ...

    async def abort(self) -> None:
        """Forget the gradients of a step that can't be finished."""
        ...


@dataclass
class TrainedStep:
    """The groups of a step, in the order in which they were trained on."""

    wanted: int
    slots: list[Slot] = field(default_factory=list)
    versions: list[GroupVersions] = field(default_factory=list)
    chunks: int = 0
    promoted: int = 0  # groups of later steps
    evicted: int = 0  # ready groups that were too old


class TrainPump:
    """Makes training steps; use it in the buffer's event loop."""

    def __init__(
        self,
        buffer: ReplayBuffer,
        sampler: StalenessSampler,
        queue: PromptQueue,
        steps: TrainSteps,
        *,
        prompts_per_step: int,
        min_groups: int,
        failures: RolloutFailureConfig,
    ) -> None:
        self._buffer, self._sampler, self._queue, self._steps = buffer, sampler, queue, steps
        self._prompts, self._min_groups, self._failures = prompts_per_step, min_groups, failures
        self._events = buffer.events
        self.idle = IdleClock(self._events.trainer_was_idle)
        #: The step being trained; None between steps.
        self.current: TrainedStep | None = None

    async def step(self, version: int) -> TrainedStep:
        """Train one step at this version, and mark its groups as trained.

        Raises:
            StalenessViolation: A sampler selected a group beyond its bound.
            StepTooSmall: Too many of the step's prompts were skipped.
        """
        step = self.current = TrainedStep(self._prompts)
        async with AsyncExitStack() as undo:
            await self._steps.begin()
            undo.push_async_exit(self._abort)
            while True:
                self._make_up_for_lost(step, version)
                if len(step.slots) >= step.wanted:
                    break
                await self._take_chunk(step, version)
            await self._steps.finish()
            undo.pop_all()
        group_ids = [slot.group_id for slot in step.slots]
        self._buffer.mark_trained(group_ids)
        rows = {slot.group_id: slot.record.rewarded_rows for slot in step.slots if slot.record}
        self._events.trained(rows, version)
        self._events.cleared(group_ids)
        self.current = None
        return step

    async def _abort(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,  # noqa: ARG002
    ) -> None:
        """End a step after an error; a worker that is lost would not answer this call either."""
        if kind is not None and not isinstance(error, WorkerLost):
            await self._steps.abort()

    async def _take_chunk(self, step: TrainedStep, version: int) -> None:
        """Train on ready groups, or wait until something has changed."""
        chunk = await self._take(step, version)
        if chunk is None:
            return
        taken, meta = chunk
        self._events.selected([slot.group_id for slot in taken], version)
        versions = [slot.versions(consumed=version) for slot in taken]
        self._sweep(taken, versions)
        await self._steps.chunk(taken, meta)
        step.slots += taken
        step.versions += versions
        step.chunks += 1

    async def _take(self, step: TrainedStep, version: int) -> tuple[list[Slot], KVBatchMeta] | None:
        """Take groups for the step; after a wait without any, return None."""
        missing = step.wanted - len(step.slots)
        seen = self._buffer.changed.count
        step.evicted += await self._sampler.evict(current_train_weight=version)
        meta, count = await self._sampler.select(
            current_train_weight=version,
            min_prompt_groups=min(self._min_groups, missing),
            max_prompt_groups=missing,
        )
        if meta is None:
            self.idle.switch("no_ready_groups")
            try:
                await self._buffer.changed.until(lambda: self._buffer.changed.count != seen)
            finally:  # a run that is stuck ends here
                self.idle.switch(None)
            return None
        return self._slots_of(meta, count, step), meta

    def _slots_of(self, meta: KVBatchMeta, count: int, step: TrainedStep) -> list[Slot]:
        """Return the slots of selected groups; raise if one is in the step already."""
        group_ids = list(dict.fromkeys(map(group_of, meta.sample_ids)))
        twice = {slot.group_id for slot in step.slots}.intersection(group_ids)
        if twice or len(group_ids) != count:
            raise DuplicateGroup(
                f"the sampler selected {count} groups: {group_ids}; in this step already: "
                f"{sorted(twice)}"
            )
        return self._buffer.training_slots(group_ids)

    def _sweep(self, slots: Sequence[Slot], versions: Sequence[GroupVersions]) -> None:
        """Check the bound where it counts: when the groups are consumed."""
        bound = self._sampler.max_staleness
        for slot, of_group in zip(slots, versions, strict=True):
            lag = staleness(of_group).total
            if bound is not None and lag > bound:
                raise StalenessViolation(
                    f"group {slot.group_id!r} is {lag} versions old, and the sampler's bound is "
                    f"{bound}: {of_group}"
                )

    def _make_up_for_lost(self, step: TrainedStep, version: int) -> None:
        """Promote a later step's group for each skipped prompt, or make the step smaller."""
        missing = step.wanted - len(step.slots)
        for _ in range(self._queue.take_lost(version, missing)):
            promoted = self._buffer.promote_ready_group(version)
            if promoted is None:
                step.wanted -= 1
            else:
                step.promoted += 1
                self._queue.add_lost(promoted.prompt.target_step)
        check_step_size(step.wanted, self._prompts, version, self._failures)

"""``RolloutPump``: dispatches prompts and keeps a bounded number of groups in flight.

    _admit  ── sampler.admit ── waits for the gate ──▶ PromptQueue.dispatch
    _launch ── PromptQueue.pop ── waits for a slot, for max_inflight, and while a weight sync
               pauses ──▶ reserve ──▶ one task per attempt
    _run    ── generate ── waits for an actor ──▶ commit, or drop with a reason
    buffer  ── on_drop ──▶ PromptQueue.dropped: the next attempt, or the prompt is skipped

All are coroutines of one event loop. The end of a task is handled in its done callback, which also
runs if the task was cancelled before it began, so that nothing stays counted as in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial as bind
from typing import Any, Protocol

from rlconform.grpo.config.async_rl import RolloutFailureConfig
from rlconform.grpo.replay.budget import REASON_OF, TooManySkippedPrompts
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.idle import IdleClock
from rlconform.grpo.replay.samplers import StalenessSampler
from rlconform.grpo.replay.slots import DropReason, Failure, GroupRecord, Prompt, Slot, SlotState
from rlconform.grpo.rollout.prompt_queue import DataloaderFailed, PromptQueue, TakeProblems
from rlconform.grpo.tasks import Problem


@dataclass(frozen=True)
class Aborted:
    """A generation that was aborted; ``partial`` is what it had, to go on from."""

    partial: Any


class GenerateGroup(Protocol):
    """Generates a group and puts its rows, with their rewards, into the plane.

    It raises ``AttemptFailed``; any other exception ends the run.
    """

    async def __call__(
        self, problem: Problem, group_id: str, partial: Any
    ) -> GroupRecord | Aborted:
        """Generate the rows; with ``partial``, go on from an aborted generation."""
        ...


class AttemptFailed(Exception):
    """An attempt failed for a reason that another attempt may not have."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


class TooManyUniformGroups(RuntimeError):
    """Dynamic sampling met too many groups in a row whose rewards are all equal."""


@dataclass(frozen=True)
class PumpOptions:
    """Numbers that the pump works with."""

    prompts_per_step: int
    max_batches: int  # steps whose prompts are dispatched in the whole run
    max_inflight: int = 32
    continue_aborted: bool = False  # whether an aborted generation goes on from its tokens
    max_uniform_in_a_row: int = 0  # groups with equal rewards before the run ends
    failures: RolloutFailureConfig = field(default_factory=RolloutFailureConfig)


class RolloutPump:
    """Dispatches the run's prompts; use it in one event loop.

    Args:
        take_problems: The dataloader.
        generate: Makes an attempt in an actor.
        abort: Tells the actors to end these groups; it does not wait.
        version: The trainer's version.
        is_uniform: Whether a group is to be replaced, because its rewards are all equal.
    """

    def __init__(
        self,
        take_problems: TakeProblems,
        buffer: ReplayBuffer,
        sampler: StalenessSampler,
        generate: GenerateGroup,
        abort: Callable[[Sequence[str]], None],
        version: Callable[[], int],
        options: PumpOptions,
        is_uniform: Callable[[GroupRecord], bool] = lambda _: False,
    ) -> None:
        self._generate, self._abort = generate, abort
        self._buffer, self._sampler, self._version = buffer, sampler, version
        self._options, self._is_uniform = options, is_uniform
        self._changed = buffer.changed
        self.queue = PromptQueue(take_problems, version, options.failures, buffer.changed)
        buffer.on_drop = self._on_drop
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._generating: dict[str, int] = {}  # start version of each group in an actor
        self._aborting: dict[str, DropReason] = {}
        self._paused = False
        self._fatal: asyncio.Future[None] | None = None
        self._uniform_in_a_row = 0
        self.idle = IdleClock(buffer.events.generation_was_idle)
        self.batches = 0  # steps whose prompts were dispatched

    async def run(self) -> None:
        """Dispatch until cancelled; raise the first error that ends the run."""
        self._fatal = asyncio.get_running_loop().create_future()
        loops = [asyncio.ensure_future(loop) for loop in self._loops()]
        try:
            done, _ = await asyncio.wait([*loops, self._fatal], return_when=asyncio.FIRST_EXCEPTION)
            for ended in done:
                ended.result()
        finally:
            for loop in loops:
                loop.cancel()

    @property
    def inflight(self) -> int:
        """Number of attempts in flight."""
        return len(self._tasks)

    @property
    def paused(self) -> bool:
        """Whether no generation starts."""
        return self._paused

    def generating(self) -> dict[str, int]:
        """Return the start version of each group that an actor is generating."""
        return dict(self._generating)

    def unfinished(self) -> list[Prompt]:
        """Return the dispatched prompts that wait for an attempt, or are in one, in order."""
        reserved = [slot.prompt for slot in self._buffer.slots(SlotState.RESERVED)]
        prompts = [*self.queue.waiting(), *reserved]
        return sorted(prompts, key=lambda prompt: prompt.sequence)

    def check(self) -> None:
        """Raise the error that ends the run, if there is one already."""
        if self._fatal is not None and self._fatal.done():
            self._fatal.result()

    def pause(self) -> None:
        """Start no generation until ``resume``."""
        self._paused = True
        self._note_idle()

    def resume(self) -> None:
        """Start generations again."""
        self._paused = False
        self._note_idle()
        self._changed.notify()

    async def drained(self) -> None:
        """Wait until no actor is generating; call it while paused."""
        await self._changed.until(lambda: not self._generating)

    def abort(self, group_ids: Sequence[str], reason: DropReason) -> None:
        """Abort generations in flight, without waiting for their end."""
        running = [group_id for group_id in group_ids if group_id in self._generating]
        if running:
            self._aborting |= dict.fromkeys(running, reason)
            self._abort(running)

    async def close(self) -> None:
        """Abort what is in flight and drop all groups, with the reason ``shutdown``."""
        self._buffer.on_drop = _ignore
        if self._fatal is not None and self._fatal.done():
            self._fatal.exception()  # marks it as seen: ``run`` may have been cancelled before
        if self._generating:
            self._abort(list(self._generating))
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.idle.switch(None)
        left = self._buffer.slots(SlotState.RESERVED, SlotState.READY, SlotState.TRAINING)
        await self._buffer.remove([slot.group_id for slot in left], DropReason.SHUTDOWN)

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        return [self._admit(), self._launch()]

    async def _admit(self) -> None:
        """Dispatch the prompts of one step after the other, as the sampler admits them."""
        while self.batches < self._options.max_batches:
            await self._changed.until(lambda: not self.queue.has_fresh)
            step = await self._sampler.admit(trainer_version_fn=self._version)
            self.batches += 1
            self.queue.dispatch(self._options.prompts_per_step, step)

    async def _launch(self) -> None:
        """Start an attempt of one prompt after the other."""
        while True:
            self._note_idle()
            await self._changed.until(self._may_start)
            prompt = self.queue.pop()
            group_id = self._buffer.reserve(prompt, self._version())
            # Not only once the task runs: a weight sync that begins before then waits for it too.
            self._generating[group_id] = self._buffer.start_version(group_id)
            task = asyncio.ensure_future(self._run(prompt))
            self._tasks[group_id] = task
            task.add_done_callback(bind(self._ended, group_id))

    def _may_start(self) -> bool:
        return self._idle_cause() is None and len(self._tasks) < self._options.max_inflight

    def _idle_cause(self) -> str | None:
        """Return why no attempt can start; None if one can, ``max_inflight`` apart."""
        if self._paused:
            return "weight_sync"
        if not len(self.queue):
            if self.queue.has_delayed:
                return "backoff"
            return "gate" if self.batches < self._options.max_batches else "all_dispatched"
        return "buffer_full" if self._buffer.size >= self._buffer.capacity else None

    def _note_idle(self) -> None:
        self.idle.switch(None if self._generating else self._idle_cause())

    async def _run(self, prompt: Prompt) -> None:
        """Make one attempt: generate, and commit the group or drop it."""
        group_id, partial = prompt.group_id, None
        while True:
            try:
                result = await self._generate_in_time(prompt.problem, group_id, partial)
            except AttemptFailed as error:
                self.queue.last_error = str(error)
                await self._buffer.remove_group(group_id, REASON_OF[error.failure])
                return
            reason = self._aborting.pop(group_id, DropReason.ABORTED_SYNC)
            if isinstance(result, GroupRecord):
                await self._commit(group_id, result)
                return
            if reason is not DropReason.ABORTED_SYNC or not self._options.continue_aborted:
                await self._buffer.remove_group(group_id, reason)
                return
            partial = result.partial
            await self._changed.until(lambda: not self._paused)

    async def _generate_in_time(
        self, problem: Problem, group_id: str, partial: Any
    ) -> GroupRecord | Aborted:
        """Call an actor, and give up after the deadline."""
        self._generating[group_id] = self._buffer.start_version(group_id)
        self._note_idle()
        limit = self._options.failures.generation_timeout_s
        try:
            if group_id in self._aborting:
                return Aborted(partial)  # aborted before it began
            async with asyncio.timeout(limit):
                return await self._generate(problem, group_id, partial)
        except TimeoutError as error:
            self._abort([group_id])
            raise AttemptFailed(
                Failure.INFRA,
                f"{group_id}: no rows in {limit:g} s (rollout_failure.generation_timeout_s)",
            ) from error
        finally:
            del self._generating[group_id]
            self._note_idle()
            self._changed.notify()

    async def _commit(self, group_id: str, record: GroupRecord) -> None:
        self.queue.succeeded()
        if not self._is_uniform(record):
            self._uniform_in_a_row = 0
            self._buffer.commit(group_id, record)
            return
        self._uniform_in_a_row += 1
        if self._uniform_in_a_row > self._options.max_uniform_in_a_row:
            raise TooManyUniformGroups(
                f"{self._uniform_in_a_row} groups in a row have equal rewards: raise "
                "grpo.dynamic_sampling_max_gen_batches, or make the task less easy or less hard"
            )
        await self._buffer.remove_group(group_id, DropReason.FILTERED_UNIFORM)

    def _ended(self, group_id: str, task: asyncio.Task[None]) -> None:
        del self._tasks[group_id]
        self._generating.pop(group_id, None)  # if it was cancelled before it began
        self._aborting.pop(group_id, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._end_run(error)
        self._note_idle()
        self._changed.notify()

    def _on_drop(self, slot: Slot, reason: DropReason) -> None:
        try:
            self.queue.dropped(slot, reason)
        except (TooManySkippedPrompts, DataloaderFailed) as error:
            self._end_run(error)

    def _end_run(self, error: BaseException) -> None:
        if self._fatal is not None and not self._fatal.done():
            self._fatal.set_exception(error)


def _ignore(slot: Slot, reason: DropReason) -> None:
    """Do nothing with a dropped group, since the run is over."""

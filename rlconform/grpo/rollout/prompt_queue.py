"""``PromptQueue``: the dispatched prompts that wait for an attempt; it retries or skips failures.

    dispatch(count, step) ── the dataloader's next problems ──▶ fresh ─┐
    dropped(slot, reason) ── within its budget: backoff ──▶ again ─────┴─▶ pop ──▶ an attempt
                          └─ else skipped: replaced by a new prompt, or its step lacks one

Every dispatched prompt ends as trained or as skipped. Further attempts come before fresh prompts,
since training may wait for them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rlconform.grpo.config.async_rl import RolloutFailureConfig
from rlconform.grpo.replay.budget import FAILURE_OF, check_skips, retry_delay
from rlconform.grpo.replay.changed import Changed
from rlconform.grpo.replay.slots import DropReason, Failure, Prompt, Slot
from rlconform.grpo.tasks import Problem

#: Takes the next problems of the run.
TakeProblems = Callable[[int], Sequence[Problem]]


class DataloaderFailed(RuntimeError):
    """The dataloader raised, or has no problems left while training needs more."""


class PromptQueue:
    """Prompts in the order in which they are attempted; use it in one event loop."""

    def __init__(
        self,
        take_problems: TakeProblems,
        version: Callable[[], int],
        options: RolloutFailureConfig,
        changed: Changed,
    ) -> None:
        self._take_problems, self._version = take_problems, version
        self._options, self._changed = options, changed
        self._fresh: deque[Prompt] = deque()
        self._again: deque[Prompt] = deque()
        self._delayed: dict[str, Prompt] = {}  # by group id, until their backoff is over
        self._lost: Counter[int | None] = Counter()  # skipped prompts by step
        self.skipped: Counter[Failure] = Counter()  # prompts that were given up, by cause
        self._skipped_in_a_row = 0
        self.last_error = ""
        self.dispatched = 0  # prompts, each counted once

    def __len__(self) -> int:
        return len(self._again) + len(self._fresh)

    @property
    def has_fresh(self) -> bool:
        """Whether a prompt waits for its first attempt."""
        return bool(self._fresh)

    @property
    def has_delayed(self) -> bool:
        """Whether a prompt waits for the end of its backoff."""
        return bool(self._delayed)

    def dispatch(self, count: int, step: int | None) -> None:
        """Add the next problems for a step, or for any; ``DataloaderFailed`` if there are none."""
        try:
            problems = self._take_problems(count)
        except (OSError, ValueError, LookupError, RuntimeError, StopIteration) as error:
            raise DataloaderFailed(f"the dataloader raised {error!r}") from error
        if len(problems) != count:
            raise DataloaderFailed(f"expected {count} problems; the dataloader has {len(problems)}")
        for problem in problems:
            self._fresh.append(Prompt(problem, self.dispatched, self._version(), step))
            self.dispatched += 1
        self._changed.notify()

    def pop(self) -> Prompt:
        """Take the next prompt."""
        return (self._again or self._fresh).popleft()

    def waiting(self) -> list[Prompt]:
        """Return the prompts that wait, in no order."""
        return [*self._again, *self._delayed.values(), *self._fresh]

    def restore(
        self,
        prompts: Sequence[Prompt],
        dispatched: int,
        skipped: Mapping[Failure, int],
        lost: Mapping[int | None, int],
    ) -> None:
        """Set the state of a resumed run; ``prompts`` are attempted before any other."""
        self._again.extend(prompts)
        self.dispatched = dispatched
        self.skipped.update(skipped)
        self._lost.update(lost)

    def take_lost(self, step: int, most: int) -> int:
        """Take the prompts that this step lacks because they were skipped, at most ``most``."""
        taken = 0
        for key in (step, None):
            count = min(self._lost[key], most - taken)
            self._lost[key] -= count
            taken += count
        return taken

    @property
    def lost(self) -> dict[int | None, int]:
        """Number of skipped prompts that each step, or any, still lacks."""
        return {step: count for step, count in self._lost.items() if count}

    def add_lost(self, step: int | None) -> None:
        """Note that a step lacks one more prompt."""
        self._lost[step] += 1
        self._changed.notify()

    def succeeded(self) -> None:
        """Note that an attempt succeeded: skips after it are counted anew as in a row."""
        self._skipped_in_a_row = 0

    def dropped(self, slot: Slot, reason: DropReason) -> None:
        """Dispatch a dropped group's prompt again, or another in its place, or skip it.

        Raises:
            TooManySkippedPrompts: The run has skipped too many prompts.
            DataloaderFailed: There is no problem to replace the prompt.
        """
        if reason is DropReason.FILTERED_UNIFORM:
            self.dispatch(1, slot.target_step)
        elif reason in FAILURE_OF:
            self._retry_or_skip(slot, FAILURE_OF[reason])

    def _retry_or_skip(self, slot: Slot, failure: Failure) -> None:
        prompt = replace(
            slot.prompt,
            target_step=slot.target_step,
            attempt=slot.prompt.attempt + 1,
            failures=(*slot.prompt.failures, failure),
        )
        delay = retry_delay(prompt.failures, self._options)
        if delay == 0:
            self._again.append(prompt)
            self._changed.notify()
        elif delay is not None:
            self._delayed[prompt.group_id] = prompt
            asyncio.get_running_loop().call_later(delay, self._end_backoff, prompt)
        else:
            self._skip(slot.target_step, failure)

    def _skip(self, step: int | None, failure: Failure) -> None:
        self.skipped[failure] += 1
        self._skipped_in_a_row += 1
        if self._options.on_dropped_prompt == "replace":
            self.dispatch(1, step)
        else:
            self.add_lost(step)
        check_skips(self.skipped, self._skipped_in_a_row, self.last_error, self._options)

    def _end_backoff(self, prompt: Prompt) -> None:
        del self._delayed[prompt.group_id]
        self._again.append(prompt)
        self._changed.notify()

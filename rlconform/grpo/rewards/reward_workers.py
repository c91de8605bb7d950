"""``RewardWorkers``: what a rollout worker needs to call the reward workers; picklable.

rollout worker ── score, awaited in its event loop ──▶ one reward worker
               ── sleep, wake: blocks ──▶ all of them
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ray.exceptions import RayActorError, RayTaskError

from rlconform.grpo.failures import WorkerDied, first_line
from rlconform.grpo.rewards.batch_runner import RunnerLost
from rlconform.grpo.rewards.reward_model import RowScore, RowToScore
from rlconform.grpo.workers.worker_group import fetch


@dataclass(frozen=True)
class RewardWorkers:
    """The handles of all ``RewardWorker`` actors of a run."""

    actors: tuple[Any, ...]
    timeout_s: float  # of a call
    sleep_while_generating: bool = False

    def runners(self) -> list[RewardRunner]:
        """Return a runner of batches per worker."""
        return [RewardRunner(actor, self.timeout_s) for actor in self.actors]

    def sleep(self) -> int:
        """Let all workers rest, and return the bytes that they freed. Idempotent.

        Raises ``WorkerLost`` if all workers died, or one did not answer in time.
        """
        return sum(self._all("sleep"))

    def wake(self) -> None:
        """Wake all workers; otherwise it is like ``sleep``."""
        self._all("wake")

    def _all(self, method: str) -> list[Any]:
        """Call a method of every worker; return the results of those that haven't died."""
        calls = [getattr(actor, method).remote() for actor in self.actors]
        results, died = [], None
        for call in calls:
            try:
                results.append(fetch(call, self.timeout_s, f"a reward worker's {method}"))
            except WorkerDied as error:
                died = error
        if died is not None and not results:
            raise died
        return results

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Let the workers rest in the block, if ``sleep_while_generating``.

        A worker that gets a batch in the block wakes up for it: nobody waits for the block's end.
        """
        if self.sleep_while_generating:
            self.sleep()
        try:
            yield
        finally:
            if self.sleep_while_generating:
                self.wake()


@dataclass(frozen=True)
class RewardRunner:
    """Runs batches on one reward worker; a ``BatchRunner``."""

    actor: Any
    timeout_s: float

    async def __call__(self, rows: Sequence[RowToScore], /) -> Sequence[RowScore]:
        """Score rows; ``RunnerLost`` if the worker died or gave no answer in ``timeout_s``."""
        call = self.actor.score.remote(list(rows))
        try:
            scores: list[RowScore] = await asyncio.wait_for(
                asyncio.wrap_future(call.future()), self.timeout_s
            )
        except RayTaskError as error:  # before TimeoutError, which its cause may be
            raise error.cause if isinstance(error.cause, Exception) else error from error
        except RayActorError as error:
            raise RunnerLost(f"a reward worker died: {first_line(error)}") from error
        except TimeoutError as error:
            raise RunnerLost(
                f"a reward worker gave no answer in {self.timeout_s:g} s (cluster.timeout_s)"
            ) from error
        return scores

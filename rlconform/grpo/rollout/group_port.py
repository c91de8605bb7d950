"""``GroupPort``: lets the event loop of an asynchronous run call the rollout workers.

    pump ── await generate(problem, group_id) ──▶ the worker with the fewest groups ──▶ plane
         ── abort(group_ids) ──▶ their workers, without waiting

Errors are sorted into ``AttemptFailed``, after which another attempt may succeed, and others, which
end the run. A worker that died gets no further groups; without a worker left the run ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from ray.exceptions import RayActorError, RayTaskError

from rlconform.contract import DataPlaneError
from rlconform.grpo.actors import RunActors
from rlconform.grpo.failures import (
    DataFailure,
    ModelFailure,
    TooFewRewards,
    WorkerDied,
    first_line,
)
from rlconform.grpo.replay.slots import Failure, GroupRecord
from rlconform.grpo.rollout.groups import AbortedGroup, GroupRollout, PartialGroup
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.pump import Aborted, AttemptFailed
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.tasks import Problem


def failure_of(error: BaseException) -> Failure | None:
    """Return the class of an attempt's error; None for an error that ends the run."""
    match error:
        case DataFailure():
            return Failure.DATA
        case ModelFailure():
            return Failure.MODEL
        case TooFewRewards():
            return Failure.REWARD
        case DataPlaneError() | RayActorError() | OSError():  # timeouts and connections included
            return Failure.INFRA
        case _:
            return None


class GroupPort:
    """Calls ``PlaneRolloutWorker.generate_group`` of the run's rollout workers."""

    def __init__(self, actors: RunActors, partition_id: str, events: RunEvents) -> None:
        self._actors, self._partition_id, self._events = actors, partition_id, events
        self._load: Counter[int] = Counter()
        self._worker_of: dict[str, int] = {}

    async def generate(
        self, problem: Problem, group_id: str, partial: PartialGroup | None
    ) -> GroupRecord | Aborted:
        """Generate a group; see ``rollout.pump.GenerateGroup``."""
        living = self._actors.living
        if not living:
            raise WorkerDied("all rollout workers have died")
        index = min(living, key=lambda each: self._load[each])
        self._load[index] += 1
        self._worker_of[group_id] = index
        try:
            call = self._actors.start_on_rollout_worker(
                index,
                PlaneRolloutWorker.generate_group,
                problem,
                group_id,
                self._partition_id,
                partial,
                self._events.stamp(),
            )
            result: GroupRollout | AbortedGroup = await asyncio.wrap_future(call.future())
        except RayTaskError as error:
            raise self._sorted(group_id, error.cause or error) from error
        except RayActorError as error:
            self._actors.rollout_worker_died(index)
            raise self._sorted(group_id, error) from error
        except asyncio.CancelledError:  # too late, or the run ends: nobody waits for the answer
            self.abort([group_id])
            raise
        finally:
            self._load[index] -= 1
            del self._worker_of[group_id]
        self._events.observe(result.stamp)
        if isinstance(result, AbortedGroup):
            return Aborted(result.partial)
        return GroupRecord(result.meta, tuple(result.summaries), result.end_version)

    def abort(self, group_ids: Sequence[str]) -> None:
        """Tell the groups' workers to end them; it does not wait."""
        by_worker: dict[int, list[str]] = {}
        for group_id in group_ids:
            if group_id in self._worker_of:
                by_worker.setdefault(self._worker_of[group_id], []).append(group_id)
        for index, ids in by_worker.items():
            self._actors.start_on_rollout_worker(index, PlaneRolloutWorker.abort, ids)

    def _sorted(self, group_id: str, error: BaseException) -> BaseException:
        """Return the exception to raise for an attempt's error."""
        failure = failure_of(error)
        if failure is None:
            return error
        return AttemptFailed(failure, f"{group_id}: {type(error).__name__}: {first_line(error)}")

"""``SimulatedWorkers``: rollout workers whose generations take simulated time.

    GroupPort ── start_on_rollout_worker ──▶ a task per group: waits until its seconds are over,
              ── abort, or the worker dies ─▶  ... or until it is stopped ──▶ a put into the plane
    weight sync ── refit ───────────────────▶ the version of all tokens from now on

A worker writes the events that a real one writes, with ``RolloutEvents``. They stand for
``RunActors``, and raise what Ray raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from ray.exceptions import RayActorError, RayTaskError
from tensordict import TensorDict

from rlconform.contract import DataPlaneClient
from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS
from rlconform.events import EventWriter
from rlconform.events.schema import DropCause, EventSource, RewardFailureCause, RolloutFailed
from rlconform.grpo.failures import DataFailure, ModelFailure, TooFewRewards
from rlconform.grpo.generation import Prefix
from rlconform.grpo.replay.slots import Failure
from rlconform.grpo.rewards.base import Reward
from rlconform.grpo.rewards.outcome import FailedReward
from rlconform.grpo.rollout.groups import AbortedGroup, GroupRollout, PartialGroup
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.pump import AttemptFailed
from rlconform.grpo.rollout.rollout_events import RolloutEvents, RolloutLegs
from rlconform.grpo.rollout.turn_loop import RolloutRow
from rlconform.grpo.rollout.worker import RowSummary
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.tasks import Problem
from rlconform.plane import kv_first_write, mint_sample_ids

#: Rows of a group.
GROUP = 2
_TOKENS_PER_S, _MOST_TOKENS = 4, 40


@dataclass(frozen=True)
class GenerationPlan:
    """What generations do: how long they take, and which of them fail."""

    seconds_of: Callable[[str], float]  # by group id
    failures: Mapping[str, Failure]  # by group id
    deaths: frozenset[str]  # groups at the end of which their worker dies


class SimulatedWorker:
    """A rollout worker: an engine, a client of the plane, and a file of events."""

    def __init__(
        self,
        plan: GenerationPlan,
        version: int,
        client: DataPlaneClient,
        writer: EventWriter,
        spent_s: dict[str, float],
    ) -> None:
        self._plan, self._client, self._writer = plan, client, writer
        self._events = RolloutEvents(writer)
        self._events.begins_with(version)
        self.version = version
        self._changes = [(float("-inf"), version)]  # when the weights became which version
        self._spent_s = spent_s  # by group, of legs that were aborted, on whatever worker
        self.stops: dict[str, asyncio.Future[Exception | None]] = {}  # of groups in flight
        self.alive = True

    def refit(self, version: int, digest: str, stamp: int) -> str:
        """Generate with these weights from now on; return the digest of what the engine holds."""

        def load() -> str:
            self.version = version
            self._changes.append((asyncio.get_running_loop().time(), version))
            return digest

        self._events.observe(stamp)
        return self._events.applied(version, load)

    def abort(self, group_ids: Sequence[str]) -> None:
        """End these generations."""
        for group_id in group_ids:
            stop = self.stops.get(group_id)
            if stop is not None and not stop.done():
                stop.set_result(None)

    def die(self) -> None:
        """Be killed: nothing is answered or written any more."""
        self.alive = False
        for stop in self.stops.values():
            if not stop.done():
                stop.set_result(RayActorError())

    async def close_events(self) -> None:
        """Abort what is in flight, wait for its calls, and write the last line."""
        if self.alive:
            self.abort(list(self.stops))
            while self.stops:
                await asyncio.sleep(0)
            self._writer.close()

    async def generate_group(
        self,
        problem: Problem,
        group_id: str,
        partition_id: str,
        partial: PartialGroup | None,
        stamp: int,
    ) -> GroupRollout | AbortedGroup:
        """Generate rows and put them; see ``PlaneRolloutWorker.generate_group``."""
        loop, stop = asyncio.get_running_loop(), self.stops[group_id]
        self._events.observe(stamp)
        ids = mint_sample_ids([group_id], GROUP)
        rows = (
            [RolloutRow(sample_id, problem, []) for sample_id in ids]
            if partial is None
            else list(deepcopy(partial.rows))
        )
        try:
            legs, began = self._events.started(rows, lambda: self.version), loop.time()
            left = self._plan.seconds_of(group_id) - self._spent_s.get(group_id, 0.0)
            await asyncio.wait([stop], timeout=max(left, 0.0))
            if group_id in self._plan.deaths:
                self.die()
            if not self.alive:
                raise RayActorError()
            for row in rows:
                row.cut = _joined(row.cut, self._tokens(row.sample_id, began, loop.time()))
            if stop.done():
                legs.ended()
                spent = self._spent_s.get(group_id, 0.0)
                self._spent_s[group_id] = spent + loop.time() - began
                return AbortedGroup(PartialGroup(group_id, tuple(rows)), self._events.stamp())
            match self._plan.failures.get(group_id):
                case Failure.DATA:
                    raise DataFailure("planned")  # the task's; nobody writes that the rows ended
                case Failure.MODEL:
                    legs.ended((RolloutFailed, DropCause.MODEL_FAILURE))
                    raise ModelFailure("planned")
                case Failure.REWARD:
                    self._end_without_rewards(rows, legs)
                    raise TooFewRewards("planned")
                case Failure.STALE:
                    legs.ended()
                    raise AttemptFailed(Failure.STALE, "planned")
            for number, row in enumerate(rows):
                row.responses.append(row.cut)
                row.cut, row.done = Prefix.empty(), True
                row.outcome = Reward(row.sample_id, 0, float(number))
            legs.ended()
            legs.rewarded()
            if self._plan.failures.get(group_id) is Failure.INFRA:
                raise ConnectionError("planned")
            return self._put(partition_id, rows)
        finally:
            del self.stops[group_id]

    @staticmethod
    def _end_without_rewards(rows: Sequence[RolloutRow], legs: RolloutLegs) -> None:
        for row in rows:
            row.responses.append(row.cut)
            row.cut, row.done = Prefix.empty(), True
            row.outcome = FailedReward(RewardFailureCause.RAISED, "planned")
        legs.ended()
        legs.rewarded()

    def _tokens(self, sample_id: str, began: float, ended: float) -> Prefix:
        """Return the tokens of a row: one at the begin and one at the end, and more between."""
        between = min(int((ended - began) * _TOKENS_PER_S), _MOST_TOKENS)
        times = [began, *(began + (ended - began) * k / (between + 1) for k in range(1, between))]
        versions = [*map(self._version_at, times), self.version]
        first = sum(map(ord, sample_id))
        ids = torch.arange(first, first + len(versions))
        return Prefix(ids, torch.zeros(len(versions)), torch.tensor(versions))

    def _version_at(self, time: float) -> int:
        return next(version for since, version in reversed(self._changes) if since <= time)

    def _put(self, partition_id: str, rows: Sequence[RolloutRow]) -> GroupRollout:
        ids = [row.sample_id for row in rows]
        lengths = torch.tensor([len(row.responses[0]) for row in rows])
        width = int(lengths.max())
        columns = TensorDict(
            {INPUT_IDS: torch.zeros((len(rows), width), dtype=torch.int64), INPUT_LENGTHS: lengths},
            batch_size=[len(rows)],
        )
        for target, row in zip(columns[INPUT_IDS], rows, strict=True):
            target[: len(row.responses[0])] = row.responses[0].token_ids
        meta = kv_first_write(self._client, columns, ids, partition_id)
        bounds = [row.responses[0].versions.aminmax() for row in rows]
        summaries = [
            RowSummary(float(number), ((0, width),), False, ((int(lowest), int(highest)),))
            for number, (lowest, highest) in enumerate(bounds)
        ]
        lowest = min(int(bound.min) for bound in bounds)
        highest = max(int(bound.max) for bound in bounds)
        return GroupRollout(meta, summaries, lowest, highest, self._events.stamp())


@dataclass(frozen=True)
class SimulatedCall:
    """What Ray's reference is to a call."""

    answer: Future[Any]

    def future(self) -> Future[Any]:
        """Return the future of the answer."""
        return self.answer


class SimulatedWorkers:
    """Stands for ``RunActors``: the rollout workers of a run, or of its part after a restart."""

    def __init__(
        self,
        workers: Sequence[SimulatedWorker],
        sources: Sequence[EventSource],
        events: RunEvents,
    ) -> None:
        self.rollout_workers = list(workers)
        self._sources, self._events = dict(enumerate(sources)), events
        self.most_in_flight = 0
        self._tasks: set[asyncio.Task[Any]] = set()  # the loop keeps weak references alone

    @property
    def living(self) -> list[int]:
        """The workers that are not known to have died, by index."""
        return list(self._sources)

    def rollout_worker_died(self, index: int) -> None:
        """Write that this worker is lost, see ``RunActors.rollout_worker_died``."""
        if index in self._sources:
            self._events.lost([self._sources.pop(index)], "it has died")

    def start_on_rollout_worker(
        self, index: int, method: Callable[..., Any], *args: Any
    ) -> SimulatedCall:
        """Call a method of a worker, see ``RunActors.start_on_rollout_worker``."""
        worker, answer = self.rollout_workers[index], Future[Any]()
        if method is PlaneRolloutWorker.abort:
            worker.abort(*args)
            answer.set_result(None)
            return SimulatedCall(answer)
        group_id = args[1]
        assert group_id not in self.in_flight(), "one call per group at a time"
        worker.stops[group_id] = asyncio.get_running_loop().create_future()
        self.most_in_flight = max(self.most_in_flight, len(self.in_flight()))
        task = asyncio.ensure_future(worker.generate_group(*args))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._answer(done, answer))
        return SimulatedCall(answer)

    def in_flight(self) -> set[str]:
        """Return the groups that are being generated."""
        return {group_id for worker in self.rollout_workers for group_id in worker.stops}

    async def close_events(self) -> None:
        """End all generations and close all files."""
        for worker in self.rollout_workers:
            await worker.close_events()

    def _answer(self, task: asyncio.Task[Any], answer: Future[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            answer.cancel()
        if not answer.set_running_or_notify_cancel():
            return  # the driver has given up
        error = task.exception()
        if error is None:
            answer.set_result(task.result())
        elif isinstance(error, RayActorError):
            answer.set_exception(error)
        else:
            failed = RayTaskError("generate_group", str(error), error)  # type: ignore[no-untyped-call]
            answer.set_exception(failed)


def _joined(first: Prefix, second: Prefix) -> Prefix:
    return Prefix(
        torch.cat([first.token_ids, second.token_ids]),
        torch.cat([first.logprobs, second.logprobs]),
        torch.cat([first.versions, second.versions]),
    )

"""The asynchronous controller on a simulated clock, with an engine and a plane made of dicts.

The controller, its pumps, buffer and samplers are the real ones. Time jumps to the next timer as
soon as nothing else can run, so a run of hours takes milliseconds. A run without a next timer is a
deadlock, and raises.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rlconform.contract import KVBatchMeta
from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.queue.queue_actor import QueueActor
from rlconform.grpo.queue.queue_controller import QueueController, queue_arguments
from rlconform.grpo.replay.budget import StepTooSmall, TooManySkippedPrompts
from rlconform.grpo.replay.slots import Failure, GroupRecord, Slot
from rlconform.grpo.rollout.pump import Aborted, AttemptFailed, TooManyUniformGroups
from rlconform.grpo.rollout.worker import RowSummary
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.tasks import Problem
from rlconform.grpo.trainers.async_controller import AsyncController, Ports, RunSize
from rlconform.grpo.trainers.stall_watchdog import StallError
from rlconform.plane import mint_sample_ids

from .simulated_log import SimulatedLog
from .simulated_queue import SimulatedCalls

T = TypeVar("T")
GROUP = 2

#: Errors with which a run may end.
TYPED_ERRORS = (TooManySkippedPrompts, StepTooSmall, TooManyUniformGroups, StallError)


class Deadlock(AssertionError):
    """Every coroutine waits for another, and no timer runs."""


class _JumpingSelector(selectors.SelectSelector):
    loop: SimulatedLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise Deadlock("every coroutine waits, and no timer runs")
        self.loop.now += max(timeout, 0.0)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def simulate(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a simulated clock."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(coroutine)


@dataclass
class Faults:
    """What goes wrong, by group id (attempt) or by number of the call."""

    attempts: dict[str, Failure] = field(default_factory=dict)
    uniform: set[str] = field(default_factory=set)
    chunks: set[int] = field(default_factory=set)
    transfers: set[int] = field(default_factory=set)
    queue_dies_at: float | None = None  # simulated seconds


@dataclass
class World:
    """The engine, the plane, the policy workers and the dataloader of a simulated run."""

    seconds_of: Callable[[str], float]  # of a group's generation
    train_s: float = 1.0
    sync_s: float = 0.1
    faults: Faults = field(default_factory=Faults)
    engine_version: int = 0
    position: int = 0
    rows: set[str] = field(default_factory=set)
    starts: dict[str, int] = field(default_factory=dict)  # the engine's version, seen at the start
    trained: list[tuple[int, str]] = field(default_factory=list)  # (step, group id)
    pending: list[str] = field(default_factory=list)  # of the step being trained
    updates: int = 0
    chunks: int = 0
    aborts: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    most_inflight: int = 0
    queue_s: float = 0.01  # mean of a way to the trajectory queue, or back
    queue: SimulatedCalls | None = None  # of the run's part after the last restart
    log: SimulatedLog | None = None  # gets the events of the driver and of the engine

    def take_problems(self, count: int) -> list[Problem]:
        first, self.position = self.position, self.position + count
        return [Problem(f"p{i}", (), "") for i in range(first, self.position)]

    async def generate(
        self,
        problem: Problem,  # noqa: ARG002
        group_id: str,
        partial: float | None,
    ) -> GroupRecord | Aborted:
        assert group_id not in self.aborts, "one call per group at a time"
        self.starts.setdefault(group_id, self.engine_version)
        left = self.seconds_of(group_id) - (partial or 0.0)
        loop = asyncio.get_running_loop()
        stop = self.aborts[group_id] = loop.create_future()
        self.most_inflight = max(self.most_inflight, len(self.aborts))
        started = loop.time()
        noted = self.log.generation(group_id, lambda: self.engine_version) if self.log else None
        try:
            done, _ = await asyncio.wait([stop], timeout=left)
            if done:
                if noted:
                    noted.aborted()
                return Aborted((partial or 0.0) + loop.time() - started)
            if group_id in self.faults.attempts:
                if noted:
                    noted.failed(self.faults.attempts[group_id])
                raise AttemptFailed(self.faults.attempts[group_id], "planned")
            ids = mint_sample_ids([group_id], GROUP)
            assert not self.rows.intersection(ids), "rows of an attempt are put once"
            self.rows.update(ids)
        finally:
            del self.aborts[group_id]
        if noted:
            noted.finished([float(i) for i in range(GROUP)])
        versions = ((self.starts[group_id], self.engine_version),)
        summaries = tuple(RowSummary(float(i), ((1, 2),), False, versions) for i in range(GROUP))
        return GroupRecord(KVBatchMeta("train", None, ids), summaries, self.engine_version)

    def abort(self, group_ids: Sequence[str]) -> None:
        for group_id in group_ids:
            stop = self.aborts.get(group_id)
            if stop is not None and not stop.done():
                stop.set_result(None)

    async def begin(self) -> None:
        assert not self.pending

    async def chunk(self, slots: Sequence[Slot], meta: KVBatchMeta) -> None:
        self.chunks += 1
        if self.chunks in self.faults.chunks:
            raise ConnectionError("planned")
        assert set(meta.sample_ids) <= self.rows, "what is trained on is in the plane"
        await asyncio.sleep(self.train_s)
        self.pending += [slot.group_id for slot in slots]

    async def finish(self) -> None:
        self.trained += [(self.updates, group_id) for group_id in self.pending]
        self.rows.difference_update(mint_sample_ids(self.pending, GROUP))
        self.pending = []
        self.updates += 1

    async def undo(self) -> None:
        self.pending = []

    async def transfer(self, version: int) -> None:
        await asyncio.sleep(self.sync_s / 2)
        if version in self.faults.transfers:
            raise ConnectionError("planned")
        self.engine_version = version
        if self.log:
            self.log.transferred(version)
        await asyncio.sleep(self.sync_s / 2)

    async def clear_rows(self, ids: list[str]) -> None:
        await asyncio.sleep(0)
        self.rows.difference_update(ids)

    def is_uniform(self, record: GroupRecord) -> bool:
        return record.meta.sample_ids[0].removesuffix("_g0") in self.faults.uniform

    def ports(self) -> Ports:
        return Ports(
            self.take_problems,
            self.generate,
            self.abort,
            _Steps(self),
            self.transfer,
            self.clear_rows,
            self.is_uniform,
        )


class _Steps:
    """The world's policy workers; their ``abort`` is not the engine's."""

    def __init__(self, world: World) -> None:
        self.begin, self.chunk, self.finish = world.begin, world.chunk, world.finish
        self.abort = world.undo


@dataclass
class Outcome:
    """A run that has ended."""

    world: World
    controller: AsyncController | None  # None if the run ended with an error
    metrics: list[dict[str, float]]
    error: Exception | None = None


def run_steps(
    config: AsyncRLConfig, world: World, *, prompts: int, steps: int, restarts: Sequence[int] = ()
) -> Outcome:
    """Run ``steps`` steps; before each step in ``restarts`` start anew from a checkpoint."""
    size = RunSize(prompts, GROUP, steps, "train", max_uniform_in_a_row=3 * prompts)
    metrics: list[dict[str, float]] = []

    async def part(first: int, last: int, saved: Any) -> tuple[Any, AsyncController]:
        log = world.log
        events = log.begin(config, prompts) if log else None
        controller = open_controller(config, size, world, first, events)
        if saved is not None:
            if events:
                events.resumed_from(first, [group.prompt.group_id for group in saved.groups])
            controller.restore(saved)
        if log:
            log.engine_has(world.engine_version)
        try:
            for _ in range(first, last):
                metrics.append((await controller.step())[1])
            state = controller.saved() if last < steps else None
            if state is not None:
                controller.note_checkpoint(with_rows=config.checkpoint_rows)
        finally:
            await controller.close()
            if log:
                log.end(controller.buffer.fates, completed=len(metrics) == steps)
        return state, controller

    saved, ends = None, [*restarts, steps]
    for first, last in zip([0, *restarts], ends, strict=True):
        try:
            saved, controller = simulate(part(first, last, saved))
        except TYPED_ERRORS as error:
            return Outcome(world, None, metrics, error)
        if saved is not None:
            world.position = saved.dispatched  # the dataloader's, in the same checkpoint
            saved = saved if config.checkpoint_rows else saved.without_rows()
            # The plane has ended with the driver; a checkpoint with rows puts them back.
            kept = [group.prompt.group_id for group in saved.groups]
            world.rows = set(mint_sample_ids(kept, GROUP))
    return Outcome(world, controller, metrics)


def open_controller(
    config: AsyncRLConfig, size: RunSize, world: World, version: int, events: RunEvents | None
) -> AsyncController:
    """Create the controller of the configured transport, in the simulated world."""
    ports = world.ports()
    if config.transport == "buffer":
        return AsyncController(config, size, ports, version=version, events=events)
    queue = QueueActor(*queue_arguments(config, size.prompts_per_step))
    world.queue = SimulatedCalls(queue, world.queue_s, world.faults.queue_dies_at)
    return QueueController(config, size, ports, world.queue, version=version, events=events)


def check_run(outcome: Outcome, bound: int, steps: int) -> None:
    """Assert what must hold for every run, whether it ended with a typed error or not."""
    world = outcome.world
    prompts = Counter(group_id.partition("-r")[0] for _, group_id in world.trained)
    assert set(prompts.values()) <= {1}, "no prompt is trained on twice"
    for step, group_id in world.trained:
        assert step - world.starts[group_id] <= bound, (step, group_id)
    assert not world.aborts, "nothing is being generated any more"
    if outcome.controller is None:
        return
    assert world.updates == steps
    controller = outcome.controller
    uniform = controller.buffer.fates["filtered_uniform"]
    skipped = controller.pump.queue.skipped.total()
    shutdown = controller.buffer.fates["shutdown"]
    assert world.position == len(world.trained) + skipped + uniform + shutdown
    assert not world.rows, "the plane is empty at the end"
    assert controller.buffer.size == 0
    assert controller.pump.inflight == 0

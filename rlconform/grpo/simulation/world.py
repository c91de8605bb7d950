"""``World``: what is around the controller of a simulated run, and what goes wrong in it.

    controller ── Ports ──▶ GroupPort ──▶ SimulatedWorkers ── put ──▶ plane
                        ──▶ policy workers: begin, chunk (get), finish (clear) ──▶ plane
                        ──▶ transfer: publish, refit of each rollout worker
                        ──▶ dataloader

The plane is a real one, ``MemoryClient`` by default; its calls take no simulated time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field

from rlconform.backends.memory import MemoryClient
from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS
from rlconform.events import EventWriter
from rlconform.events.schema import WeightsPublished
from rlconform.grpo.actors import torn_weights
from rlconform.grpo.failures import TornWeights
from rlconform.grpo.replay.slots import Failure, GroupRecord, Slot
from rlconform.grpo.rollout.group_port import GroupPort
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.simulation.engines import (
    GROUP,
    GenerationPlan,
    SimulatedWorker,
    SimulatedWorkers,
)
from rlconform.grpo.simulation.log import SimulatedLog
from rlconform.grpo.tasks import Problem
from rlconform.grpo.trainers.async_controller import Ports
from rlconform.plane import mint_sample_ids
from rlconform.plane.event_client import EventClient

PARTITION = "train"

#: Gives the plane of a part of the run; it is left when the part ends.
OpenPlane = Callable[[], AbstractContextManager[DataPlaneClient]]


def memory_plane() -> AbstractContextManager[DataPlaneClient]:
    """Open a plane of this process's memory, which closes when it is left."""
    return closing(MemoryClient({}))


@dataclass
class Faults:
    """What goes wrong, by group id (attempt) or by number of the call."""

    attempts: dict[str, Failure] = field(default_factory=dict)
    uniform: set[str] = field(default_factory=set)
    deaths: set[str] = field(default_factory=set)  # the worker that generates it dies
    chunks: set[int] = field(default_factory=set)
    transfers: set[int] = field(default_factory=set)
    queue_dies_at: float | None = None  # seconds of the run's part


@dataclass
class World:
    """The engines, the plane, the policy workers and the dataloader of a run."""

    seconds_of: Callable[[str], float]  # of a group's generation
    train_s: float = 1.0
    sync_s: float = 0.1
    faults: Faults = field(default_factory=Faults)
    worker_count: int = 1
    log: SimulatedLog = field(default_factory=lambda: SimulatedLog(None))
    open_plane: OpenPlane = memory_plane
    queue_s: float = 0.01  # mean of a way to the trajectory queue, or back
    engine_version: int = 0
    position: int = 0
    starts: dict[str, int] = field(default_factory=dict)  # the engine's version, seen at the start
    trained: list[tuple[int, str]] = field(default_factory=list)  # (step, group id)
    pending: list[str] = field(default_factory=list)  # of the step being trained
    updates: int = 0
    chunks: int = 0
    most_inflight: int = 0
    rows: set[str] = field(default_factory=set)  # in the plane, as far as answers have said

    @contextmanager
    def begin_part(self) -> Iterator[RunEvents]:
        """Start the plane and the actors of the run, or of its part after a restart.

        The plane is left in the end.
        """
        self.log.begin_part()
        with self.open_plane() as self.plane:
            self.plane.register_partition(
                PARTITION, [INPUT_IDS, INPUT_LENGTHS], 64 * GROUP, ["train"], GROUP
            )
            self.plane.clear_samples(sample_ids=None, partition_id=PARTITION)  # of a part before
            self.rows = set()
            self.events = RunEvents(self.log.writer("driver"))
            self.policy = self.log.writer("policy")
            self.driver_client = self._client(self.events.writer)
            self.policy_client = self._client(self.policy)
            yield self.events

    def start_workers(self) -> None:
        """Start the rollout workers with the weights of now."""
        plan = GenerationPlan(self.seconds_of, self.faults.attempts, frozenset(self.faults.deaths))
        writers = [self.log.writer("rollout", rank) for rank in range(self.worker_count)]
        spent: dict[str, float] = {}
        self.workers = SimulatedWorkers(
            [
                SimulatedWorker(plan, self.engine_version, self._client(writer), writer, spent)
                for writer in writers
            ],
            [writer.source for writer in writers],
            self.events,
        )
        self.port = GroupPort(self.workers, PARTITION, self.events)  # type: ignore[arg-type]

    async def end_part(self) -> None:
        """End the actors."""
        await self.workers.close_events()
        self.most_inflight = max(self.most_inflight, self.workers.most_in_flight)
        self.policy.close()

    def _client(self, writer: EventWriter) -> DataPlaneClient:
        return EventClient(self.plane, writer) if self.log.enabled else self.plane

    def take_problems(self, count: int) -> list[Problem]:
        """Return the next problems."""
        first, self.position = self.position, self.position + count
        return [Problem(f"p{i}", (), "") for i in range(first, self.position)]

    async def generate(self, problem: Problem, group_id: str, partial: object) -> object:
        """Generate a group on one of the workers."""
        self.starts.setdefault(group_id, self.engine_version)
        result = await self.port.generate(problem, group_id, partial)  # type: ignore[arg-type]
        if isinstance(result, GroupRecord):
            assert not self.rows.intersection(result.meta.sample_ids), "rows are put once"
            self.rows.update(result.meta.sample_ids)
        return result

    def abort(self, group_ids: Sequence[str]) -> None:
        """End generations."""
        self.port.abort(group_ids)

    async def begin(self) -> None:
        """Begin a step."""
        assert not self.pending

    async def chunk(self, slots: Sequence[Slot], meta: KVBatchMeta) -> None:
        """Read the rows of these groups, and train on them for some time."""
        self.chunks += 1
        if self.chunks in self.faults.chunks:
            raise ConnectionError("planned")
        self.policy.observe(self.events.stamp())
        self.policy_client.get_samples(
            sample_ids=meta.sample_ids, partition_id=PARTITION, select_fields=[INPUT_IDS]
        )
        await asyncio.sleep(self.train_s)
        self.pending += [slot.group_id for slot in slots]

    async def finish(self) -> None:
        """Update the weights, and clear the step's rows."""
        self.trained += [(self.updates, group_id) for group_id in self.pending]
        if self.pending:
            self._clear(mint_sample_ids(self.pending, GROUP))
        self.pending = []
        self.updates += 1

    async def undo(self) -> None:
        """Forget the step's gradients."""
        self.pending = []

    async def transfer(self, version: int) -> None:
        """Publish this version of the weights, and bring it to every worker."""
        await asyncio.sleep(self.sync_s / 2)
        if version in self.faults.transfers:
            raise ConnectionError("planned")
        digest = f"weights of {version}"
        self.policy.observe(self.events.stamp())
        self.policy.write(WeightsPublished(version=version, digest=digest))
        held = {
            index: worker.refit(version, digest, self.policy.stamp())
            for index, worker in enumerate(self.workers.rollout_workers)
            if worker.alive
        }
        self.engine_version = version
        if torn := torn_weights(version, digest, held):
            raise TornWeights(torn)
        await asyncio.sleep(self.sync_s / 2)

    async def clear_rows(self, ids: list[str]) -> None:
        """Clear the rows of dropped groups."""
        await asyncio.sleep(0)
        self._clear(ids)

    def _clear(self, ids: list[str]) -> None:
        self.driver_client.clear_samples(sample_ids=ids, partition_id=PARTITION)
        self.rows.difference_update(ids)

    def is_uniform(self, record: GroupRecord) -> bool:
        """Whether the group is to be replaced."""
        return record.meta.sample_ids[0].removesuffix("_g0") in self.faults.uniform

    def ports(self) -> Ports:
        """Return what the controller calls."""
        return Ports(
            self.take_problems,
            self.generate,  # type: ignore[arg-type]
            self.abort,
            _Steps(self),
            self.transfer,
            self.clear_rows,
            self.is_uniform,
        )


class _Steps:
    """The world's policy workers; their ``abort`` is not the rollout workers'."""

    def __init__(self, world: World) -> None:
        self.begin, self.chunk, self.finish = world.begin, world.chunk, world.finish
        self.abort = world.undo

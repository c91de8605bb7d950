"""``SoakRun``: starts the callers of a soak run, drains their calls, and grants ids again.

    parent ── begin ──▶ callers: threads on a plane of one process, else an actor each
    parent ◀── drain ── calls that have ended            every ``_TURN_S`` seconds
           ──▶ SoakLedger ── freed ids ──▶ grant ──▶ producers
           ──▶ samples of each process, once per interval
    at the end: stop producers and readers; when they have ended, stop claimers, which empty it

Only the parent waits, and only with deadlines. A call without an answer in its time is a failure,
and so is a process that ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.concurrency.workload_thread import WorkloadSpec, WorkloadThread
from rlconform.certify.isolation.client_actor import ClientActor
from rlconform.certify.isolation.remote_client import RemoteWorkload
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.target import resolve_target
from rlconform.contract import DataPlaneClient, Timeouts
from rlconform.soak.callers import FIELDS, TASK, SoakClaimer, SoakProducer, SoakReader
from rlconform.soak.judge import SoakVerdict, judge_soak
from rlconform.soak.ledger import SoakLedger
from rlconform.soak.samples import CallRates, ProcessSeries, series_of

#: Seconds between two drains, and the most samples of a run.
_TURN_S, _MOST_SAMPLES = 0.2, 400
#: Ids of each producer: so many of its rows are in the plane at most.
RING = 512
PARTITION = "soak"


@dataclass(frozen=True)
class SoakOptions:
    """What runs, and for how long."""

    spec: str
    minutes: float
    producers: int
    claimers: int
    readers: int
    config: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


class SoakHandle(Protocol):
    """A caller that runs in this process or in another one."""

    def begin(self, spec: WorkloadSpec) -> None:
        """Start it."""

    def drain(self) -> tuple[list[Operation], bool]:
        """Return its calls since the last drain, and whether it still runs."""

    def grant(self, ids: list[str]) -> None:
        """Let it put these ids."""

    def stop(self) -> None:
        """Ask it to end."""

    def give_up(self) -> None:
        """Let it make no more calls."""


class SoakThread(WorkloadThread):
    """A caller in a thread of this process."""

    def drain(self) -> tuple[list[Operation], bool]:  # type: ignore[override]  # as the remote one
        """Return its calls since the last drain, and whether it still runs."""
        running = self.running
        return super().drain(), running


@dataclass
class SoakCaller:
    """A caller and what is known of it."""

    who: str
    role: str
    handle: SoakHandle
    running: bool = True


@dataclass
class SoakState:
    """What a run has shown so far; the dashboard and the report read it."""

    options: SoakOptions
    target: dict[str, str]
    seconds: float = 0.0
    ledger: SoakLedger = field(default_factory=SoakLedger)
    rates: CallRates = field(default_factory=CallRates)
    processes: list[ProcessSeries] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdict: SoakVerdict | None = None


class SoakRun:
    """Runs one soak; ``on_turn`` is called with the state after each turn."""

    def __init__(self, options: SoakOptions, on_turn: Callable[[SoakState], None]) -> None:
        self._options, self._on_turn = options, on_turn
        target = resolve_target(options.spec)
        self._session = PlaneSession(options.spec, target, options.config, target.level)
        self._timeouts: Timeouts = target.timeouts
        self._callers: list[SoakCaller] = []
        self._interval_s = max(1.0, 60 * options.minutes / _MOST_SAMPLES)
        about = {"name": target.name, "vendor": target.vendor, "version": target.version}
        self.state = SoakState(options, about)

    def run(self) -> SoakState:
        """Run it to its end, or until the user interrupts it; then judge what there is."""
        try:
            self._open()
            self._work()
            drained = self._drain_plane()
        except KeyboardInterrupt:
            drained = False
            self.state.notes.append("interrupted: rows in the plane were not judged")
        except ContractViolation as violation:
            drained = False
            self.state.ledger.note_lost(str(violation))
        finally:
            self._close()
        state = self.state
        state.ledger.close(drained)
        state.verdict = judge_soak(state.ledger, state.processes, state.seconds, state.notes)
        return state

    # -- the beginning and the end ---------------------------------------------------------------

    def _open(self) -> None:
        owner = self._session.owner()
        every = [f"p{n}_{k}" for n in range(self._options.producers) for k in range(RING)]
        owner.register_partition(
            partition_id=PARTITION,
            fields=list(FIELDS),
            num_samples=len(every),
            consumer_tasks=[TASK],
        )
        workloads: list[SoakProducer | SoakClaimer | SoakReader] = [
            *[SoakProducer()] * self._options.producers,
            *[SoakClaimer()] * self._options.claimers,
            *[SoakReader(tuple(every))] * self._options.readers,
        ]
        handles, pids = self._handles(owner, len(workloads))
        names: dict[str, int] = {"owner": os.getpid()}
        for number, (workload, handle) in enumerate(zip(workloads, handles, strict=True)):
            who = f"{workload.role}{number}"
            seed = str(self._options.seed)
            handle.begin(WorkloadSpec(workload, PARTITION, who, number + 1, seed))
            self._callers.append(SoakCaller(who, workload.role, handle))
            if number < len(pids):
                names[who] = pids[number]
        for number, caller in enumerate(self._callers[: self._options.producers]):
            caller.handle.grant([f"p{number}_{k}" for k in range(RING)])
        self.state.processes = series_of(names | self._plane_processes(owner, set(names.values())))

    def _handles(
        self, owner: DataPlaneClient, count: int
    ) -> tuple[Sequence[SoakHandle], list[int]]:
        """Return a handle for each caller, and the pids of those in other processes."""
        if not self._session.several_processes:
            return [SoakThread(owner) for _ in range(count)], []
        clients = self._session.actors().start(count)
        pids = [client.ask("its pid", 0.0, ClientActor.pid) for client in clients]
        return [RemoteWorkload(client) for client in clients], pids

    def _plane_processes(self, owner: DataPlaneClient, known: set[int]) -> dict[str, int]:
        control = self._session.target.control
        if control is None:
            return {}
        named = control(owner)
        found: dict[str, int] = {}
        for role, pids in (
            ("controller", named.controller_pids()),
            ("storage", named.storage_pids()),
        ):
            for number, pid in enumerate(pids):
                if pid not in known:
                    known.add(pid)
                    found[f"{role}{number}"] = pid
        return found

    def _close(self) -> None:
        for caller in self._callers:
            caller.handle.give_up()
        try:
            self._session.close()
        except ContractViolation as violation:
            self.state.notes.append(f"in the end: {violation}")

    # -- the work --------------------------------------------------------------------------------

    def _work(self) -> None:
        began = time.monotonic()
        due = began + 60 * self._options.minutes
        sampled = began - self._interval_s
        while (now := time.monotonic()) < due:
            self.state.seconds = now - began
            if now - sampled >= self._interval_s:
                sampled = now
                self._sample()
            self._turn()
            time.sleep(max(0.0, min(_TURN_S, due - time.monotonic())))
        self.state.seconds = time.monotonic() - began
        self._sample()

    def _sample(self) -> None:
        at = self.state.seconds
        for series in self.state.processes:
            if not series.sample(at):
                raise ContractViolation(f"{series.name} to live", f"its process {series.pid} ended")
        self.state.rates.end_interval(at)

    def _turn(self) -> None:
        """Drain every caller, and grant what was freed."""
        freed: dict[str, list[str]] = {}
        for caller in self._callers:
            operations, caller.running = caller.handle.drain()
            for op in operations:
                if op.end is None:
                    self._watch(op)
                    continue
                self.state.rates.add(op)
                for sample_id in self.state.ledger.feed(op, caller.role):
                    freed.setdefault(sample_id.partition("_")[0], []).append(sample_id)
        for number, caller in enumerate(self._callers[: self._options.producers]):
            if ids := freed.get(f"p{number}"):
                caller.handle.grant(ids)
        self._on_turn(self.state)

    def _watch(self, op: Operation) -> None:
        if time.monotonic() - op.start > self._timeouts.operation + op.waits:
            self.state.ledger.note_overdue(op, self._timeouts.operation)

    def _drain_plane(self) -> bool:
        """Stop all, claimers last; return whether the claimers emptied the plane."""
        claimers = [caller for caller in self._callers if caller.role == SoakClaimer.role]
        others = [caller for caller in self._callers if caller.role != SoakClaimer.role]
        return self._end(others) and self._end(claimers)

    def _end(self, callers: list[SoakCaller]) -> bool:
        for caller in callers:
            caller.handle.stop()
        due = time.monotonic() + 3 * self._timeouts.operation
        while any(caller.running for caller in callers):
            if time.monotonic() > due:
                late = next(caller.who for caller in callers if caller.running)
                self.state.ledger.note_lost(f"{late} did not end when it was asked to")
                return False
            self._turn()
            time.sleep(_TURN_S / 4)
        self._turn()  # what ended between the last drain and the end
        return True

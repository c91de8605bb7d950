"""``FaultRun``: callers in processes of their own, faults, and one history of all calls.

    check ── start ──▶ actors ── a thread runs the workload ──▶ plane
              each call ──▶ journal file ──▶ check: is it the moment?
          ── SIGSTOP ── still the moment? ── yes ──▶ nemesis     (no: SIGCONT, look again)
          ── until ──▶ survivors have made calls after the fault
          ── finish ──▶ survivors stop and end; a killed caller's calls come from its journal

The check waits for journals with a deadline. A call that hangs ends the wait as well: it is then a
call without an end, which the checker ``hung`` finds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.journal import JournalReader
from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.concurrency.workload_runner import WorkloadHandle
from rlconform.certify.concurrency.workload_thread import WorkloadSpec, WorkloadThread
from rlconform.certify.concurrency.workloads import Workload
from rlconform.certify.durability.moments import Moment, typical_s
from rlconform.certify.durability.nemeses import Kill, Nemesis, ProcessFault, held
from rlconform.certify.isolation.actor_pool import ActorPool
from rlconform.certify.isolation.client_actor import ClientActor
from rlconform.certify.isolation.remote_client import RemoteClient, RemoteWorkload
from rlconform.contract import DataPlaneClient, Timeouts

#: Seconds between two looks at a journal.
_LOOK_S = 0.0005
#: Seconds between two looks at the clock while callers work.
_TURN_S = 0.05
#: Times that a caller is stopped to see whether it is the moment, before the fault is missed.
_TRIES = 400


@dataclass
class Caller:
    """A workload in a process of its own, or in a thread of this one if it has no client."""

    who: str
    workload: Workload
    pid: int
    journal: JournalReader
    handle: WorkloadHandle
    client: RemoteClient | None = None
    dead: bool = False
    operations: list[Operation] = field(default_factory=list)  # once it has ended


class FaultRun:
    """One run on one partition; ``finish`` returns its history.

    Args:
        pool: Starts processes with attached clients; ``None`` on a plane of one process.
        owner: The client of this process.
        partition_id, timeouts, seed: As for ``WorkloadRunner``.
        folder: Where the journals are.
        keep: Called with all operations, also if the run ends in an error.
    """

    def __init__(
        self,
        pool: Callable[[], ActorPool],
        owner: DataPlaneClient,
        partition_id: str,
        timeouts: Timeouts,
        seed: str,
        folder: Path,
        keep: Callable[[list[Operation]], None],
    ) -> None:
        self._pool, self._owner, self._partition_id = pool, owner, partition_id
        self._timeouts, self._seed, self._folder, self._keep = timeouts, seed, folder, keep
        self.callers: list[Caller] = []
        self.faults: list[ProcessFault] = []

    # -- callers -----------------------------------------------------------------------------

    def start(self, *workloads: Workload) -> list[Caller]:
        """Start each workload in a new process that attaches to the plane."""
        clients = self._pool().start(len(workloads))
        return [
            self._begin(workload, RemoteWorkload(client), client)
            for workload, client in zip(workloads, clients, strict=True)
        ]

    def start_here(self, workload: Workload) -> Caller:
        """Start the workload in a thread of this process, with the owner's client."""
        return self._begin(workload, WorkloadThread(self._owner), None)

    def _begin(
        self, workload: Workload, handle: WorkloadHandle, client: RemoteClient | None
    ) -> Caller:
        number = len(self.callers)
        who = f"{type(workload).__name__.lower()}{number}"
        path = self._folder / f"{who}.jsonl"
        pid = client.ask("its pid", 0.0, ClientActor.pid) if client else 0
        caller = Caller(who, workload, pid, JournalReader(path), handle, client)
        self.callers.append(caller)
        handle.begin(WorkloadSpec(workload, self._partition_id, who, number, self._seed, str(path)))
        return caller

    # -- faults ------------------------------------------------------------------------------

    def strike_at(
        self, caller: Caller, moment: Moment, nemesis: Nemesis, role: str, into: float = 0.0
    ) -> ProcessFault:
        """Wait for the caller's moment, and strike it then; it is stopped while the check looks.

        The strike comes ``into`` the call under way, a share of what such calls usually take.
        """
        due = time.monotonic() + self._patience_s
        tries = 0
        while time.monotonic() < due and tries < _TRIES:
            if moment(caller.journal.poll()):
                tries += 1
                time.sleep(into * typical_s(caller.journal.poll()))
                with held(caller.pid):
                    if moment(caller.journal.poll()):
                        return self._struck(nemesis, role, caller.pid, caller)
            time.sleep(_LOOK_S)
        now = time.monotonic()
        missed = f"the moment for {role} did not come in {self._patience_s:g} s and {tries} tries"
        return self._add(ProcessFault("missed", role, caller.pid, now, now, missed))

    def strike(self, role: str, pid: int, *nemeses: Nemesis) -> list[ProcessFault]:
        """Strike a process of the plane, or a caller at any moment."""
        return [self._struck(nemesis, role, pid, None) for nemesis in nemeses]

    def _struck(self, nemesis: Nemesis, role: str, pid: int, caller: Caller | None) -> ProcessFault:
        fault = nemesis.strike(role, pid)
        if isinstance(nemesis, Kill) and caller is not None and caller.client is not None:
            caller.dead = caller.client.died = True
        return self._add(fault)

    def _add(self, fault: ProcessFault) -> ProcessFault:
        self.faults.append(fault)
        return fault

    # -- waiting and ending --------------------------------------------------------------------

    @property
    def _patience_s(self) -> float:
        """Seconds that the check waits for callers, beside the deadline of a single call."""
        return 3 * self._timeouts.operation

    def until(self, moment: Moment, *callers: Caller) -> bool:
        """Wait until it is the moment for each caller; False if one hangs or time is over."""
        due = time.monotonic() + self._patience_s
        while not all(moment(caller.journal.poll()) for caller in callers):
            if time.monotonic() > due:
                return False
            time.sleep(_LOOK_S * 10)
        return True

    def last(self, seconds: float) -> None:
        """Let the callers work for ``seconds``, less if one of them ends early."""
        due = time.monotonic() + seconds
        while time.monotonic() < due and not any(caller.dead for caller in self.callers):
            time.sleep(min(_TURN_S, seconds))

    def run(self, workload: Workload) -> None:
        """Run a workload that ends by itself in this process, to its end."""
        caller = self.start_here(workload)
        self._collect(caller)

    def finish(self) -> History:
        """Stop and end all callers; return the history of all calls.

        Raises:
            ContractViolation: A process that was not killed ended, or a workload did not end though
                its calls returned.
        """
        running = [caller for caller in self.callers if not caller.operations]
        try:
            for caller in running:
                if not caller.dead:
                    caller.handle.stop()
            for caller in running:
                self._collect(caller)
            for caller in running:
                if caller.client is not None:
                    caller.client.end()
        finally:
            operations = [op for caller in self.callers for op in caller.operations]
            self._keep(operations)
        return History(operations)

    def end(self) -> None:
        """End the callers' processes, also after a run that failed."""
        for caller in self.callers:
            caller.handle.give_up()
            if caller.client is not None:
                caller.client.end()

    def survivors(self, callers: Sequence[Caller] | None = None) -> list[str]:
        """Return the names of callers that were not killed."""
        return [caller.who for caller in callers or self.callers if not caller.dead]

    def _collect(self, caller: Caller) -> None:
        if caller.dead:
            caller.operations = [
                replace(op, killed=True) if op.end is None else op for op in caller.journal.poll()
            ]
            return
        longest = self._timeouts.operation + getattr(caller.workload, "wait_s", 0.0)
        all_s = max(self._timeouts.check, 2 * longest)
        try:
            result = caller.handle.finish(longest, all_s)
        except ContractViolation:
            caller.operations = caller.journal.poll()
            raise
        caller.operations = result.operations
        if result.traceback:
            raise RuntimeError(f"a workload raised:\n{result.traceback}")
        if not (result.finished or result.hangs):
            raise ContractViolation(
                f"{caller.who} to end within {all_s:g} s",
                f"{len(result.operations)} calls, and it still makes more",
            )

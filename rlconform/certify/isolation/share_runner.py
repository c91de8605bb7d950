"""``ShareRunner``: runs a share of a run's checks in test processes, one after another.

    ShareRunner ──starts──▶ TestProcess (pytest) ──▶ plane
                ◀─events──  waits for the next event, the process's end, or the deadline
                ──events──▶ RunState, which the runners of other shares write to as well

If a check's process dies or hangs, the check is recorded as CRASH or TIMEOUT, and a new process
runs the remaining checks. The share is given up after two processes in a row without a result.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlconform.backends import ONE_PROCESS
from rlconform.certify.isolation import events
from rlconform.certify.isolation.check_in_flight import CheckInFlight
from rlconform.certify.isolation.child_process import TestProcess
from rlconform.certify.isolation.events import Event
from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.run_state import RunState
from rlconform.certify.isolation.shares import Share
from rlconform.certify.options import CertifyOptions
from rlconform.certify.reproduce.render import Call
from rlconform.certify.results import Outcome, PlannedCheck
from rlconform.contract import DataPlaneError

#: Seconds for work that does not involve the plane: starting Python, collecting the checks.
OWN_PATIENCE = 120.0
#: Seconds between two looks at whether the run was stopped.
LOOK_S = 0.5

#: A process that produced fewer results than this is assumed to crash again; the next one runs the
#: checks of a single file.
MIN_RESULTS_BEFORE_RESTART = 3

#: Events after which a test process ends by itself.
LAST_EVENTS = (events.SessionFinished, events.PlaneUnhealthy, events.PlaneClosedByCheck)


class PlaneDidNotStart(DataPlaneError):
    """The target can't be opened."""

    def __init__(self, message: str, detail: str, plain: bool = False) -> None:
        super().__init__(message)
        self.detail = detail  # the traceback, or the end of what the process printed
        self.plain = plain  # whether the message alone is enough to fix it


class Stopped(Exception):
    """The run was stopped."""


class ShareRunner:
    """Runs the checks of one share, or of ``ids``. It does not close the fork server."""

    def __init__(
        self,
        state: RunState,
        options: CertifyOptions,
        fork_server: ForkServer,
        share: Share,
        ids: frozenset[str] | None = None,
    ) -> None:
        self._state, self._options, self._fork_server = state, options, fork_server
        self._share, self._ids = share, ids  # its ids are known once a process collected them
        self._in_flight: CheckInFlight | None = None
        self._tries_round_trip = True
        self._results = 0  # of all its test processes
        self._last_count: int | None = None  # of the last one, once there was one

    def run(self) -> bool:
        """Run every check of the share; return False if it was given up.

        Raises:
            PlaneDidNotStart: The first process can't open the plane.
        """
        started, fruitless = time.monotonic(), 0
        try:
            while not self._state.stopped and (self._ids is None or self._pending()):
                before = self._results
                self._one_process()
                self._last_count = self._results - before
                fruitless = 0 if self._last_count else fruitless + 1
                if fruitless == 2:
                    return False
            return True
        finally:
            self._state.spend(share=time.monotonic() - started)

    def _pending(self) -> list[PlannedCheck]:
        return [check for check in self._state.run.pending if check.id in (self._ids or ())]

    # -- one test process --------------------------------------------------------------------

    def _one_process(self) -> None:
        self._state.begin_process()
        self._in_flight = None
        process = self._fork_server.start(self._arguments(), self._files(), self._attaches())
        last: Event | None = None
        began = time.monotonic()
        try:
            while not isinstance(last, LAST_EVENTS):
                try:
                    event = self._next_event(process, time.monotonic() + self._patience(last))
                except TimeoutError:
                    self._on_hang(process, last)
                    return
                except Stopped:
                    return
                if event is None:
                    self._on_death(process, last)
                    return
                last = event
                if isinstance(event, events.PlaneOpened):
                    self._state.spend(processes=time.monotonic() - began)
                if isinstance(event, events.CallOverdue):
                    if self._ends_check(event, process):
                        return
                else:
                    self._on_event(event)
        finally:
            ending, timeouts = time.monotonic(), self._state.timeouts
            process.end(timeouts.operation + 5 if isinstance(last, LAST_EVENTS) else 0.0)
            finished = isinstance(last, events.SessionFinished)
            left = self._fork_server.end_leftovers(timeouts.settle if finished else 0.0)
            if left and finished:
                self._state.remark(f"still running after close: {', '.join(sorted(left))}")
            self._state.spend(processes=time.monotonic() - ending)
        if message := process.usage_error():
            raise PlaneDidNotStart(message, "", plain=True)

    def _attaches(self) -> bool:
        """Whether checks may attach clients; the target's own level is known once it is open."""
        level = self._options.level or self._state.run.target.get("level")
        return level != "unit" and self._options.spec not in ONE_PROCESS

    def _next_event(self, process: TestProcess, deadline: float) -> Event | None:
        """Return as ``TestProcess.next_event``; raise ``Stopped`` once the run was stopped."""
        while not self._state.stopped:
            try:
                return process.next_event(min(deadline, time.monotonic() + LOOK_S))
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise
        raise Stopped

    def _arguments(self) -> list[str]:
        """Return the pytest options of the next test process, which runs the remaining checks."""
        arguments = self._options.pytest_arguments()
        arguments += ["--rlconform-hangs", self._state.hangs()]
        ids = self._options.only
        if self._ids is not None:
            ids = [check.id for check in self._pending()]
        elif self._share.count > 1:
            arguments += ["--rlconform-share", str(self._share)]
        if ids:
            arguments += ["--rlconform-only", self._fork_server.write_ids(ids)]
        if not self._tries_round_trip:
            arguments.append("--rlconform-no-health")
        return arguments

    def _files(self) -> Sequence[str]:
        """Return the files with checks still to run; after an early crash, only the first file."""
        if self._ids is None:
            return self._options.checks
        files = list(dict.fromkeys(check.id.partition("::")[0] for check in self._pending()))
        few = self._last_count is not None and self._last_count < MIN_RESULTS_BEFORE_RESTART
        return files[:1] if few else files

    def _patience(self, last: Event | None) -> float:
        """Return how many seconds the next event may take after ``last`` (None: at the start)."""
        if self._in_flight is not None:
            return max(0.0, self._in_flight.deadline - time.monotonic())
        timeouts = self._state.timeouts
        match last:
            case events.PlaneOpened():
                return 4 * timeouts.operation  # a round trip, a look at methods and types
            case events.PlaneOpening() | events.PlaneClosing():
                return timeouts.start + timeouts.operation
            case events.CheckEnded():
                return OWN_PATIENCE + 2 * timeouts.operation
            case _:
                return OWN_PATIENCE

    # -- events ------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        """Follow the check that runs now; the state records the rest."""
        match event:
            case events.StartFailed(message, detail, plain):
                self._start_failed(message, detail, plain)
            case events.ChecksCollected(checks) if self._ids is None:
                self._ids = self._share.of([check.id for check in checks if not check.left_out])
            case events.CheckBegan(check_id):
                check = self._state.run.planned(check_id)
                most = max(self._state.timeouts.check, check.patience)
                self._in_flight = CheckInFlight(check, self._options.check_timeout or most)
            case events.CheckEnded():
                self._in_flight = None
                self._results += 1
            case _ if self._in_flight is not None:
                self._in_flight.on_event(event, OWN_PATIENCE + self._state.timeouts.start)
        self._state.on_event(event)

    # -- a test process that is lost -----------------------------------------------------------

    def _ends_check(self, event: events.CallOverdue, process: TestProcess) -> bool:
        """Record a timeout of the check that waits for the call; False if it no longer runs."""
        in_flight = self._in_flight
        if in_flight is None or event.check != in_flight.check.id:
            return False
        self._state.note_hang(event)
        calls = process.calls(event.check)  # first: the call may return, and another check begin
        self._record_loss(in_flight, Outcome.TIMEOUT, event.text, process.stacks(), calls)
        return True

    def _on_hang(self, process: TestProcess, last: Event | None) -> None:
        calls = process.calls(self._in_flight.check.id) if self._in_flight else []
        stacks, what = process.stacks(), type(last).__name__
        if self._in_flight is not None:
            evidence = f"the check did not end within {self._in_flight.allowed_s:g} s"
            self._record_loss(self._in_flight, Outcome.TIMEOUT, evidence, stacks, calls)
            return
        match last:
            case events.PlaneOpened():
                self._round_trip_failed()
                return
            case None | events.TargetDescribed() | events.HostsNamed() | events.PlaneOpening():
                opening = isinstance(last, events.PlaneOpening)
                late = "it did not open" if opening else "the kit itself did not get ready"
                self._start_failed(f"{late} within {self._patience(last):g} s", stacks)
        self._note(f"a test process hung between checks, after {what}; it was ended")

    def _on_death(self, process: TestProcess, last: Event | None) -> None:
        how, tail = process.how_it_ended(), process.tail()
        if self._in_flight is not None:
            calls = process.calls(self._in_flight.check.id)
            during = f"; the last call begun was {calls[-1].describe()}" if calls else ""
            evidence = f"the process that used the plane {how}{during}"
            self._record_loss(self._in_flight, Outcome.CRASH, evidence, tail, calls)
            return
        match last:
            case events.PlaneOpened():
                self._round_trip_failed()
            case None | events.TargetDescribed() | events.HostsNamed() | events.PlaneOpening():
                self._start_failed(f"the process that opened it {how}", tail)
            case events.StartFailed():
                pass
            case _:
                self._note(f"a test process {how} between checks")

    def _round_trip_failed(self) -> None:
        """Skip the first round trip in later processes, because it killed or hung this one."""
        self._tries_round_trip = False
        self._note("the plane can't do the simplest round trip: its process was lost")

    def _record_loss(
        self,
        in_flight: CheckInFlight,
        outcome: Outcome,
        evidence: str,
        stacks: str,
        calls: Sequence[Call],
    ) -> None:
        self._results += 1
        lost = in_flight.lost(outcome, evidence, stacks, calls, self._options)
        self._state.on_event(events.CheckEnded(lost))

    def _start_failed(self, message: str, detail: str, plain: bool = False) -> None:
        if self._ids is None:
            raise PlaneDidNotStart(message, detail, plain)
        self._note(f"a fresh plane did not start: {message}")

    def _note(self, text: str) -> None:
        self._state.note(text)

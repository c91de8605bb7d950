"""``Runner``: runs the checks of a certification in test processes that may crash or hang.

    Runner ──starts──▶ TestProcess (pytest) ──▶ plane
           ◀─events──  waits for the next event, the process's end, or the deadline

If a check's process dies or hangs, the check is recorded as CRASH or TIMEOUT, and a new process
runs the remaining checks. The run stops after two processes in a row without a result.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

from rlconform.certify.isolation import events
from rlconform.certify.isolation.check_in_flight import CheckInFlight
from rlconform.certify.isolation.child_process import TestProcess
from rlconform.certify.isolation.events import Event
from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.hang_tally import HungCalls
from rlconform.certify.isolation.shown import SHOWN, Shown
from rlconform.certify.options import CertifyOptions
from rlconform.certify.results import BROKEN, CheckResult, Outcome, PlannedCheck, RunRecord
from rlconform.contract import DataPlaneError, Timeouts, load_requirements

#: Seconds for work that does not involve the plane: starting Python, collecting the checks.
OWN_PATIENCE = 120.0

#: A process that produced fewer results than this is assumed to crash again; the next one runs the
#: checks of a single file.
MIN_RESULTS_BEFORE_RESTART = 3

#: Events after which a test process ends by itself.
LAST_EVENTS = (events.SessionFinished, events.PlaneUnhealthy, events.PlaneClosedByCheck)

#: Called with the run and the event that was just added to it.
Listener = Callable[[RunRecord, Event], None]


class PlaneDidNotStart(DataPlaneError):
    """The target can't be opened."""

    def __init__(self, message: str, detail: str, plain: bool = False) -> None:
        super().__init__(message)
        self.detail = detail  # the traceback, or the end of what the process printed
        self.plain = plain  # whether the message alone is enough to fix it


class Runner:
    """Runs one certification. It does not close a ``fork_server`` that the caller passes."""

    def __init__(
        self,
        options: CertifyOptions,
        listener: Listener | None = None,
        fork_server: ForkServer | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._options, self._on_end = options, on_end
        self._listener = listener or (lambda _run, _event: None)
        self._fork_server = fork_server or ForkServer()
        self._owns_fork_server = fork_server is None
        self._in_flight: CheckInFlight | None = None
        self._tries_round_trip = True
        self._last_count = 0  # results of the last test process
        self._hangs = HungCalls(options.max_hangs)
        self._shown = Shown(options.enough)
        self._timeouts = Timeouts()
        self.run = RunRecord()

    def certify(self) -> RunRecord:
        """Run every check. When interrupted, end the processes and return the results so far."""
        started = time.monotonic()
        try:
            fruitless = 0
            while not self.run.plan or self.run.pending:
                before = len(self.run.results)
                self._one_process()
                self._last_count = len(self.run.results) - before
                fruitless = 0 if self._last_count else fruitless + 1
                if self._enough():
                    limit = self._options.max_failures
                    self.run.notes.append(f"stopped after {limit} broken checks, as asked for")
                    break
                if fruitless == 2:
                    self.run.notes.append("stopped: two test processes in a row gave no result")
                    break
            self._on_end()
        except KeyboardInterrupt:
            if not self.run.plan:
                raise
            self.run.notes.append("interrupted: the report is partial")
        finally:
            if self._owns_fork_server:
                self._fork_server.close()
            if fewer := self.run.fewer_examples:
                tried = f"fewer were tried by {len(fewer)} of the checks, such as {fewer[0]}"
                self.run.notes.append(f"no time for all generated examples: {tried}")
            self.run.seconds = time.monotonic() - started
        self.run.complete = bool(self.run.plan) and not self.run.pending
        return self.run

    # -- one test process --------------------------------------------------------------------

    def _one_process(self) -> None:
        self.run.children += 1
        self._in_flight = None
        process = self._fork_server.start(self._arguments(), self._files())
        last: Event | None = None
        began = time.monotonic()
        try:
            while not isinstance(last, LAST_EVENTS):
                try:
                    event = process.next_event(time.monotonic() + self._patience(last))
                except TimeoutError:
                    self._on_hang(process, last)
                    return
                if event is None:
                    self._on_death(process, last)
                    return
                last = event
                if isinstance(event, events.PlaneOpened):
                    self.run.process_seconds += time.monotonic() - began
                if isinstance(event, events.CallOverdue):
                    ends = self._ends_check(event, process)
                else:
                    self._on_event(event)
                    ends = self._enough()
                if ends:
                    return
        finally:
            ending = time.monotonic()
            process.end(self._timeouts.operation + 5 if isinstance(last, LAST_EVENTS) else 0.0)
            finished = isinstance(last, events.SessionFinished)
            left = self._fork_server.end_leftovers(self._timeouts.settle if finished else 0.0)
            if left and finished:
                self.run.notes.append(f"still running after close: {', '.join(sorted(left))}")
            self.run.process_seconds += time.monotonic() - ending
        if message := process.usage_error():
            raise PlaneDidNotStart(message, "", plain=True)

    def _arguments(self) -> list[str]:
        """Return the pytest options of the next test process, which runs the remaining checks."""
        arguments = self._options.pytest_arguments()
        arguments += ["--rlconform-hangs", json.dumps(asdict(self._hangs))]
        ids = [check.id for check in self.run.pending] if self.run.plan else self._options.only
        if ids:
            arguments += ["--rlconform-only", self._fork_server.write_ids(ids)]
        if not self._tries_round_trip:
            arguments.append("--rlconform-no-health")
        return arguments

    def _files(self) -> Sequence[str]:
        """Return the files with checks still to run; after an early crash, only the first file."""
        if not self.run.plan:
            return self._options.checks
        files = list(dict.fromkeys(check.id.partition("::")[0] for check in self.run.pending))
        return files[:1] if self._last_count < MIN_RESULTS_BEFORE_RESTART else files

    def _patience(self, last: Event | None) -> float:
        """Return how many seconds the next event may take after ``last`` (None: at the start)."""
        timeouts = self._timeouts
        match last:
            case (
                events.CheckBegan()
                | events.CallBegan()
                | events.ExampleBegan()
                | events.ProcessesChanging()
            ) if self._in_flight is not None:
                return max(0.0, self._in_flight.deadline - time.monotonic())
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
        match event:
            case events.TargetDescribed() | events.HostsNamed():
                self._note_target(event)
            case events.StartFailed(message, detail, plain):
                self._start_failed(message, detail, plain)
            case events.ChecksCollected(checks):
                self.run.plan = self.run.plan or checks
            case events.CheckBegan(check_id):
                check = self.run.planned(check_id)
                allowed_s = self._options.check_timeout or max(self._timeouts.check, check.patience)
                self._in_flight = CheckInFlight(check, allowed_s)
            case events.CheckEnded(result):
                self._in_flight = None
                self._note(result)
            case events.ChangeFound(result):
                self.run.plan.append(PlannedCheck(result.id, result.requirement))
                self._note(result)
            case events.ExamplesCutShort(check_id, text):
                self.run.fewer_examples.append(f"{check_id} ({text})")
            case events.CallAbandoned():
                self._note_hang(event)
            case events.RemarkMade(text) if text not in self.run.notes:
                self.run.notes.append(text)
            case events.PlaneUnhealthy(text):
                self.run.notes.append(text)
            case events.SessionFinished(seconds):
                self.run.process_seconds += seconds
            case _ if self._in_flight is not None:
                self._in_flight.on_event(event, OWN_PATIENCE + self._timeouts.start)
        self._listener(self.run, event)

    def _note(self, result: CheckResult) -> None:
        """Record a result; leave out the other checks of its requirement if it shows enough."""
        self.run.results[result.id] = result
        if self._shown.note(result, self.run.target.get("capabilities", {})):
            self.run.leave_out(result.requirement, SHOWN)

    def _note_target(self, event: events.TargetDescribed | events.HostsNamed) -> None:
        if isinstance(event, events.HostsNamed):
            self.run.target["hosts"] = event.hosts
        else:
            self.run.target |= event.description
            self._timeouts = Timeouts(**self.run.target.get("timeouts", {}))

    def _note_hang(self, event: events.CallOverdue | events.CallAbandoned) -> None:
        before = set(self._hangs.given_up)
        self._hangs.note(event.kind, event.check, self.run.planned(event.check).requirement)
        for kind, why in self._hangs.given_up.items():
            if kind not in before:
                self.run.notes.append(f"{why}: checks that need it are not tested")

    def _enough(self) -> bool:
        """Whether ``max_failures`` checks of MUSTs are broken; probes are not counted."""
        if self._options.max_failures is None:
            return False
        requirements = load_requirements()
        broken = sum(
            requirements[result.requirement].level == "MUST" and not self.run.is_probe(result)
            for result in self.run.results.values()
            if result.outcome in BROKEN
        )
        return broken >= self._options.max_failures

    # -- a test process that is lost -----------------------------------------------------------

    def _ends_check(self, event: events.CallOverdue, process: TestProcess) -> bool:
        """Record a timeout of the check that waits for the call; False if it no longer runs."""
        in_flight = self._in_flight
        if in_flight is None or event.check != in_flight.check.id:
            return False
        self._note_hang(event)
        self._record_loss(in_flight, Outcome.TIMEOUT, event.text, process.stacks())
        return True

    def _on_hang(self, process: TestProcess, last: Event | None) -> None:
        stacks, what = process.stacks(), type(last).__name__
        if self._in_flight is not None:
            evidence = f"the check did not end within {self._in_flight.allowed_s:g} s"
            self._record_loss(self._in_flight, Outcome.TIMEOUT, evidence, stacks)
            return
        match last:
            case events.PlaneOpened():
                self._round_trip_failed()
                return
            case None | events.TargetDescribed() | events.HostsNamed() | events.PlaneOpening():
                opening = isinstance(last, events.PlaneOpening)
                late = "it did not open" if opening else "the kit itself did not get ready"
                self._start_failed(f"{late} within {self._patience(last):g} s", stacks)
        self.run.notes.append(f"a test process hung between checks, after {what}; it was ended")

    def _on_death(self, process: TestProcess, last: Event | None) -> None:
        how, tail = process.how_it_ended(), process.tail()
        if self._in_flight is not None:
            call = self._in_flight.last_call
            during = f"; the last call begun was {call.describe()}" if call else ""
            evidence = f"the process that used the plane {how}{during}"
            self._record_loss(self._in_flight, Outcome.CRASH, evidence, tail)
            return
        match last:
            case events.PlaneOpened():
                self._round_trip_failed()
            case None | events.TargetDescribed() | events.HostsNamed() | events.PlaneOpening():
                self._start_failed(f"the process that opened it {how}", tail)
            case events.StartFailed():
                pass
            case _:
                self.run.notes.append(f"a test process {how} between checks")

    def _round_trip_failed(self) -> None:
        """Skip the first round trip in later processes, because it killed or hung this one."""
        self._tries_round_trip = False
        self.run.notes.append("the plane can't do the simplest round trip: its process was lost")

    def _record_loss(
        self, in_flight: CheckInFlight, outcome: Outcome, evidence: str, stacks: str
    ) -> None:
        result = in_flight.lost(outcome, evidence, stacks, self._options)
        self._note(result)
        self._listener(self.run, events.CheckEnded(result))

    def _start_failed(self, message: str, detail: str, plain: bool = False) -> None:
        if not self.run.plan:
            raise PlaneDidNotStart(message, detail, plain)
        self.run.notes.append(f"a fresh plane did not start: {message}")

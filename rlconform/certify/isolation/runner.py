"""Run the checks of a certification in child processes that may crash or hang.

    Runner ──starts──▶ Child (pytest) ──▶ plane
           ◀─events──        waits for: the next event, the child's end, or the deadline

A check that kills or hangs its child is recorded as CRASH or TIMEOUT, and a fresh child goes on
with the checks that are left. The run always ends: two children in a row without a result end it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rlconform.certify.isolation.hung_calls import HungCalls
from rlconform.certify.isolation.pytest_arguments import process_arguments
from rlconform.certify.isolation.test_process import ForkServer, TestProcess
from rlconform.certify.options import CertifyOptions, Listener, RunRecord
from rlconform.certify.reproduce.render import Call, Origin, render_script
from rlconform.certify.results import BROKEN, CheckResult, Outcome, PlannedCheck
from rlconform.contract import DataPlaneError, Timeouts, load_requirements

#: Seconds for what the plane has no part in: starting Python, collecting the checks.
OWN_PATIENCE = 120.0

#: Results with which a child ended soon.
FEW = 3

#: Events after which a child ends by itself.
LAST_WORDS = frozenset({"bye", "sick", "spent"})


class PlaneDidNotStart(DataPlaneError):
    """The target can't be opened.

    ``detail`` is the traceback or the process's last words; ``plain`` says that the message alone
    tells what to mend.
    """

    def __init__(self, message: str, detail: str, plain: bool = False) -> None:
        super().__init__(message)
        self.detail = detail
        self.plain = plain


class Runner:
    """Runs one certification.

    Args:
        options: What to run.
        listener: Hears of every event as it comes.
        nursery: Where test processes come from, if it serves other runs as well; whoever made it
            closes it.
    """

    def __init__(
        self,
        options: CertifyOptions,
        listener: Listener | None = None,
        nursery: ForkServer | None = None,
    ) -> None:
        self._options = options
        self._listener = listener or (lambda _run, _event: None)
        self._nursery = nursery or ForkServer()
        self._own_nursery = nursery is None
        self._in_flight = ""  # id of the check that has begun and not ended
        self._patience_of: dict[str, float] = {}  # by check id, where it has its own
        self._calls: list[Call] = []  # the client calls that it made, as many as are told in full
        self._last_call: Call | None = None
        self._check_began = self._check_deadline = 0.0
        self._look_after_health = True
        self._brought = 0  # results of the last child
        self._hangs = HungCalls(options.max_hangs)
        self.run = RunRecord()

    def certify(self) -> RunRecord:
        """Run every check. Interrupted, it ends what it started and gives what it has.

        Raises:
            PlaneDidNotStart: The first child could not open the plane, or can't use the options.
        """
        started = time.monotonic()
        try:
            fruitless = 0
            while not self.run.plan or self.run.pending:
                before = len(self.run.results)
                self._one_child()
                self._brought = len(self.run.results) - before
                fruitless = 0 if self._brought else fruitless + 1
                if self._enough():
                    limit = self._options.max_failures
                    self.run.notes.append(f"stopped after {limit} broken checks, as asked for")
                    break
                if fruitless == 2:
                    self.run.notes.append("stopped: two test processes in a row brought no result")
                    break
        except KeyboardInterrupt:
            if not self.run.plan:
                raise
            self.run.notes.append("interrupted: the report is partial")
        finally:
            if self._own_nursery:
                self._nursery.close()
            if fewer := self.run.fewer_examples:
                self.run.notes.append(
                    f"no time for all generated examples: fewer were tried by {len(fewer)} of the "
                    f"checks, such as {fewer[0]}"
                )
            self.run.seconds = time.monotonic() - started
        self.run.complete = bool(self.run.plan) and not self.run.pending
        return self.run

    # -- one child ---------------------------------------------------------------------------

    def _one_child(self) -> None:
        self.run.children += 1
        self._in_flight = ""
        child = self._nursery.start(self._arguments(), self._files())
        event: dict[str, Any] = {"event": "started"}
        began = time.monotonic()
        try:
            while event["event"] not in LAST_WORDS:
                try:
                    received = child.next_event(time.monotonic() + self._patience(event))
                except TimeoutError:
                    self._hung(child, event)
                    return
                if received is None:
                    self._died(child, event)
                    return
                event = received
                if event["event"] == "hung" and event["id"] != self._in_flight:
                    continue  # it came back while the watchdog told of it
                if event["event"] == "hung":
                    self._note_hang(event)
                    self._lost(Outcome.TIMEOUT, event["text"], child.stacks())
                    return
                if event["event"] == "opened":
                    self.run.process_seconds += time.monotonic() - began
                self._take(event)
                if self._enough():
                    return
        finally:
            ending = time.monotonic()
            child.end(self._timeouts.operation + 5 if event["event"] in LAST_WORDS else 0.0)
            ended = event["event"] == "bye"
            left = self._nursery.end_leftovers(self._timeouts.settle if ended else 0.0)
            if left and ended:
                self.run.notes.append(f"still running after close: {', '.join(sorted(left))}")
            self.run.process_seconds += time.monotonic() - ending
        if said := child.refused():
            raise PlaneDidNotStart(said, "", plain=True)

    def _arguments(self) -> list[str]:
        """Options of the next test process; it runs what is left to run."""
        due = [check.id for check in self.run.pending] if self.run.plan else self._options.only
        only = self._nursery.note(due) if due else ""
        hangs = json.dumps(self._hangs.as_data())
        return process_arguments(self._options, only, hangs, self._look_after_health)

    def _files(self) -> Sequence[str]:
        """Files that still hold checks to run: collecting the others again would only take time.

        After a child that soon ended it is the first of them: the next one is likely to end soon.
        """
        if not self.run.plan:
            return self._options.checks
        files = list(dict.fromkeys(check.id.partition("::")[0] for check in self.run.pending))
        return files[:1] if self._brought < FEW else files

    @property
    def _check_seconds(self) -> float:
        """What the check in flight may take."""
        asked_for = self._options.check_timeout
        return asked_for or max(self._timeouts.check, self._patience_of.get(self._in_flight, 0.0))

    @property
    def _timeouts(self) -> Timeouts:
        return Timeouts(**self.run.target.get("timeouts", {}))

    def _patience(self, event: dict[str, Any]) -> float:
        """Seconds that the child may take after ``event`` until the next one."""
        timeouts = self._timeouts
        match event["event"]:
            case "begin" | "call" | "restart" | "processes":
                return max(0.0, self._check_deadline - time.monotonic())
            case "opened":
                return 3 * timeouts.operation  # a round trip, and a look at the types
            case "opening":
                return timeouts.start + timeouts.operation  # opening, then a first round trip
            case "closing":
                return timeouts.start + timeouts.operation
            case "end":
                return OWN_PATIENCE + 2 * timeouts.operation
            case _:
                return OWN_PATIENCE

    def _take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "target":
                self.run.target |= {key: value for key, value in event.items() if key != "event"}
            case "start_failed":
                self._start_failed(event["message"], event["detail"], event["plain"])
            case "plan" if not self.run.plan:
                self.run.plan = [PlannedCheck(**check) for check in event["checks"]]
                self._patience_of = {check.id: check.patience for check in self.run.plan}
            case "begin":
                self._in_flight, self._calls, self._last_call = event["id"], [], None
                self._check_began = time.monotonic()
                self._check_deadline = self._check_began + self._check_seconds
            case "call":
                self._last_call = Call(*(event[f.name] for f in fields(Call)))
                if self._last_call.source:
                    self._calls.append(self._last_call)
            case "restart":
                self._calls, self._last_call = [], None
            case "processes":
                self._allow_start(event["seconds"])
            case "bye":
                self.run.process_seconds += event["seconds"]
            case "end":
                self._in_flight = ""
                body = {f.name: event[f.name] for f in fields(CheckResult)}
                result = CheckResult(**body | {"outcome": Outcome(event["outcome"])})
                self.run.results[result.id] = result
            case _:
                self._take_remark(event)
        self._listener(self.run, event)

    def _take_remark(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "fewer":
                self.run.fewer_examples.append(event["id"])
            case "stuck":
                self._note_hang(event)
            case "note" if event["text"] not in self.run.notes:
                self.run.notes.append(event["text"])
            case "sick":
                self.run.notes.append(event["text"])

    def _note_hang(self, event: dict[str, Any]) -> None:
        before = set(self._hangs.given_up)
        check = next(check for check in self.run.plan if check.id == event["id"])
        self._hangs.note(event["call_kind"], check.id, check.requirement)
        for kind, why in self._hangs.given_up.items():
            if kind not in before:
                self.run.notes.append(f"{why}: checks that need it are not tested")

    def _enough(self) -> bool:
        """Whether as many checks of MUSTs are broken as were asked for; probes do not count."""
        if self._options.max_failures is None:
            return False
        requirements = load_requirements()
        broken = [
            result
            for result in self.run.results.values()
            if result.outcome in BROKEN
            and requirements[result.requirement].level == "MUST"
            and not self.run.is_probe(result)
        ]
        return len(broken) >= self._options.max_failures

    def _allow_start(self, seconds: float) -> None:
        """Processes that a check starts have their own patience beside the check's."""
        allowed = OWN_PATIENCE + self._timeouts.start
        self._check_deadline += allowed if seconds == 0.0 else min(seconds, allowed) - allowed

    # -- a child that does not come back -------------------------------------------------------

    def _hung(self, child: TestProcess, last: dict[str, Any]) -> None:
        stacks = child.stacks()
        if not self._in_flight:
            if self._health_broke(last):
                return
            if last["event"] in {"started", "target"}:
                took = f"{self._patience(last):g} s"
                self._start_failed(f"the kit itself did not get ready within {took}", stacks)
            if last["event"] == "opening":
                self._start_failed(f"it did not open within {self._patience(last):g} s", stacks)
            self.run.notes.append(f"a test process hung after {last['event']}; it was ended")
            return
        evidence = f"the check did not end within {self._check_seconds:g} s"
        self._lost(Outcome.TIMEOUT, evidence, stacks)

    def _died(self, child: TestProcess, last: dict[str, Any]) -> None:
        how = child.how_it_ended()
        tail = child.tail()
        if not self._in_flight:
            if self._health_broke(last):
                return
            if last["event"] in {"started", "target", "opening"}:
                self._start_failed(f"the process that opened it {how}", tail)
            elif last["event"] != "start_failed":
                self.run.notes.append(f"a test process {how} between checks")
            return
        call = f"; the last call begun was {self._last_call.describe()}" if self._last_call else ""
        self._lost(Outcome.CRASH, f"the process that used the plane {how}{call}", tail)

    def _health_broke(self, last: dict[str, Any]) -> bool:
        """Whether it was the first look at the plane's health that took the process down."""
        if last["event"] != "opened":
            return False
        self._look_after_health = False
        self.run.notes.append("the plane can't do the simplest round trip: its process was lost")
        return True

    def _lost(self, outcome: Outcome, evidence: str, stacks: str) -> None:
        check = next(check for check in self.run.plan if check.id == self._in_flight)
        seconds = time.monotonic() - self._check_began
        options = self._options
        origin = Origin(check.requirement, check.id, options.spec, options.config, options.seed)
        result = CheckResult(
            check.id,
            check.requirement,
            outcome,
            capability=check.capability,
            evidence=evidence,
            steps=[call.text for call in self._calls],
            stacks=stacks,
            seconds=seconds,
            plane_seconds=seconds,
            reproducer=render_script(origin, evidence, self._calls),
            at_once=any(call.concurrent for call in self._calls),
        )
        self.run.results[result.id] = result
        self._listener(self.run, {"event": "end", "id": check.id, "outcome": outcome})

    def _start_failed(self, message: str, detail: str, plain: bool = False) -> None:
        if not self.run.plan:
            raise PlaneDidNotStart(message, detail, plain)
        self.run.notes.append(f"a fresh plane did not start: {message}")

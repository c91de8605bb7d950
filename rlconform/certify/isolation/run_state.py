"""``RunState``: the record of a run, to which the runners of all shares write.

ShareRunner, one thread each ──event──▶ RunState ──under its lock──▶ RunRecord, listener
                             ◀─stopped─
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict

from rlconform.certify.isolation import events
from rlconform.certify.isolation.events import Event
from rlconform.certify.isolation.hang_tally import HungCalls
from rlconform.certify.isolation.shown import SHOWN, Shown
from rlconform.certify.options import CertifyOptions
from rlconform.certify.results import BROKEN, CheckResult, PlannedCheck, RunRecord
from rlconform.contract import Timeouts, load_requirements

#: Called with the run and the event that was just added to it.
Listener = Callable[[RunRecord, Event], None]


class RunState:
    """The record of a run, and what all its test processes need to know of each other."""

    def __init__(self, options: CertifyOptions, listener: Listener | None = None) -> None:
        self.run = RunRecord(jobs=options.jobs)
        self.timeouts = Timeouts()  # the defaults, until the target is described
        self._most_broken = options.max_failures
        self._listener = listener or (lambda _run, _event: None)
        self._hangs = HungCalls(options.max_hangs)
        self._shown = Shown(options.enough)
        self._stopped = threading.Event()
        self._lock = threading.RLock()  # the listener may look at the run

    # -- for all shares ----------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether no more checks shall run."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Let no more checks run: the runners of all shares end their test processes."""
        self._stopped.set()

    def hangs(self) -> str:
        """Return the calls that hung so far as a test process takes them: as JSON."""
        with self._lock:
            return json.dumps(asdict(self._hangs))

    def begin_process(self) -> None:
        """Count a test process."""
        with self._lock:
            self.run.children += 1

    def spend(self, *, processes: float = 0.0, share: float = 0.0) -> None:
        """Count seconds: of starting and ending processes, and of a whole share of the checks."""
        with self._lock:
            self.run.process_seconds += processes
            self.run.share_seconds += share

    def note(self, text: str) -> None:
        """Note what happened to a test process."""
        with self._lock:
            self.run.notes.append(text)

    def remark(self, text: str) -> None:
        """Note a remark, once."""
        with self._lock:
            if text not in self.run.notes:
                self.run.notes.append(text)

    # -- events ------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Record an event of a test process, and call the listener."""
        with self._lock:
            match event:
                case events.TargetDescribed(description):
                    self.run.target |= description
                    self.timeouts = Timeouts(**self.run.target.get("timeouts", {}))
                case events.HostsNamed(hosts):
                    self.run.target["hosts"] = hosts
                case events.ChecksCollected(checks):
                    self.run.plan = self.run.plan or checks
                case events.CheckEnded(result):
                    self._note(result)
                case events.ChangeFound(result):
                    self.run.plan.append(PlannedCheck(result.id, result.requirement))
                    self._note(result)
                case events.ExamplesCutShort(check_id, text):
                    self.run.fewer_examples.append(f"{check_id} ({text})")
                case events.CallAbandoned():
                    self.note_hang(event)
                case events.RemarkMade(text):
                    self.remark(text)
                case events.PlaneUnhealthy(text):
                    self.run.notes.append(text)
                case events.SessionFinished(seconds):
                    self.run.process_seconds += seconds
            self._listener(self.run, event)

    def note_hang(self, event: events.CallOverdue | events.CallAbandoned) -> None:
        """Record a call that hung; note which kinds of calls are not made again."""
        with self._lock:
            before = set(self._hangs.given_up)
            requirement = self.run.planned(event.check).requirement
            self._hangs.note(event.kind, event.check, requirement)
            for kind, why in self._hangs.given_up.items():
                if kind not in before:
                    self.run.notes.append(f"{why}: checks that need it are not tested")

    def _note(self, result: CheckResult) -> None:
        """Record a result; leave out the other checks of its requirement if it shows enough."""
        self.run.results[result.id] = result
        if self._shown.note(result, self.run.target.get("capabilities", {})):
            self.run.leave_out(result.requirement, SHOWN)
        if not self.stopped and self._enough():
            self.run.notes.append(f"stopped after {self._most_broken} broken checks, as asked for")
            self.stop()

    def _enough(self) -> bool:
        """Whether as many checks of MUSTs are broken as asked for; probes are not counted."""
        if self._most_broken is None:
            return False
        requirements = load_requirements()
        broken = sum(
            requirements[result.requirement].level == "MUST" and not self.run.is_probe(result)
            for result in self.run.results.values()
            if result.outcome in BROKEN
        )
        return broken >= self._most_broken

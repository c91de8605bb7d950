"""The pytest plugin: it opens the plane under test and reports each check to the runner.

    runner ──starts──▶ test process: pytest with this plugin and --events-fd N
           ◀─events──  see isolation/events.py; ShareRunner and RunState handle them

Under plain ``pytest`` there is no event pipe: the same checks are ordinary tests.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from rlconform.certify.adapter_source import adapter_of
from rlconform.certify.assertions.expect import ContractViolation, FewerExamples, ShouldViolation
from rlconform.certify.isolation import events
from rlconform.certify.isolation.actor_pool import ActorsLateWarning
from rlconform.certify.isolation.calls_file import CallsFile
from rlconform.certify.isolation.events import EventPipe
from rlconform.certify.isolation.hang_tally import HungCalls
from rlconform.certify.plugin.call_watchdog import Watchdog, allowance
from rlconform.certify.plugin.check_plan import CheckPlan
from rlconform.certify.plugin.check_result import (
    RECORDING,
    CleanUpFailed,
    check_id,
    describe,
    drop_records,
    ends_plane,
    result_of,
    turn_of,
)
from rlconform.certify.plugin.enough_shown import EnoughShown
from rlconform.certify.plugin.own_pytest import OwnPytest
from rlconform.certify.plugin.plane_session import PlaneSession, failure_of
from rlconform.certify.plugin.session_options import session_of
from rlconform.certify.recording.changes import Change
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.shorten import error_text
from rlconform.certify.results import BROKEN, CheckResult, Outcome
from rlconform.contract import ConfigError, load_requirements

pytest_plugins = (
    "rlconform.pytest_plugin",
    "rlconform.certify.plugin.options",
    "rlconform.certify.plugin.fixtures",
    "rlconform.certify.plugin.fault_fixtures",
)

#: Changes of arguments or results that a test process reports; a defect shows in many checks.
MOST_CHANGES = 3

#: Exit status of a test process whose plane no longer works: the runner starts a fresh one.
UNHEALTHY_PLANE = 70


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and the plugin with its event pipe."""
    config.addinivalue_line("markers", "requirement(id): the requirement that a check checks")
    config.addinivalue_line("markers", "gpu: needs a CUDA device")
    config.addinivalue_line("markers", "large: puts much or takes long: no blocks of rows")
    fd = config.getoption("--rlconform-events-fd")
    checks = CertifyPlugin(config, EventPipe(fd))
    config.pluginmanager.register(checks, "rlconform-checks")
    config.pluginmanager.register(checks.enough, "rlconform-enough")
    plan = CheckPlan(config, checks.pipe, lambda: checks.session)
    config.pluginmanager.register(plan, "rlconform-plan")
    if fd is None and config.getoption("--rlconform-target") is not None:
        config.pluginmanager.register(OwnPytest(config, lambda: checks.session), "rlconform-own")


class CertifyPlugin:
    """The hooks and the state of a pytest run over one target."""

    def __init__(self, config: pytest.Config, pipe: EventPipe) -> None:
        self.pipe = pipe
        self.enough = EnoughShown(config)
        self._pytest, self._option = config, config.getoption
        self._calls = CallsFile(config.getoption("--rlconform-calls-file"))
        self._seed: int = config.getoption("--rlconform-seed")
        self._session: PlaneSession | None = None
        self._results: dict[str, CheckResult] = {}
        self._warnings: dict[str, list[str]] = {}
        self._watchdog: Watchdog | None = None
        self._in_flight = ""
        self._starting_seconds = 0.0
        self._hangs = HungCalls(**json.loads(config.getoption("--rlconform-hangs")))
        self._changes: Counter[str] = Counter()  # of arguments and of results, by requirement
        self._shown: set[int] = set()  # turns in which a check was broken

    # -- the plane ---------------------------------------------------------------------------

    @property
    def session(self) -> PlaneSession:
        """The session of the plane under test; the first access resolves the target."""
        if self._session is None:
            self._session = session_of(self._pytest, self._report_processes)
        return self._session

    def pytest_sessionstart(self) -> None:
        """Under the runner, open the plane first, so that no check is blamed for a failed start."""
        if not self.pipe.watched:
            return
        try:
            target = self.session.target
            description = describe(self.session)
            first = not self._option("--rlconform-only")  # the first process reports it for all
            if first:
                description["adapter"] = adapter_of(target)
            self.pipe.send(events.TargetDescribed(description))
            self.session.prepare()
            if hosts := [host.name for host in self.session.hosts]:
                self.pipe.send(events.HostsNamed(hosts))
            self.pipe.send(events.PlaneOpening())
            self.session.owner()
        except BaseException as error:  # noqa: BLE001 - a plane may fail to start in any way
            known = isinstance(error, ConfigError)
            message = str(error) if known else error_text(error)
            self.pipe.send(events.StartFailed(message, traceback.format_exc(), plain=known))
            pytest.exit("the plane does not start", returncode=UNHEALTHY_PLANE)
        self._newly_starting()  # the runner counts it, with the start of this process
        self.pipe.send(events.PlaneOpened())
        if self._option("rlconform_health"):
            self.session.note_health()
            if unwritten := self.session.unwritten() if first else "":
                self.pipe.send(events.StartFailed(unwritten, "", plain=True))
                pytest.exit("the adapter is not written yet", returncode=UNHEALTHY_PLANE)
            if remarks := self.session.remarks_on_types() if first else []:
                self._remark(f"unusual types, judged by their values: {'; '.join(remarks)}")
        self.pipe.send(events.HealthNoted())
        self._watchdog = Watchdog(
            target.timeouts,
            lambda late: self.pipe.send(events.CallOverdue(self._in_flight, late.kind, late.text)),
        )

    def pytest_sessionfinish(self) -> None:
        """Close the plane, and report how long that took."""
        closing = 0.0
        if self._session is not None:
            self.pipe.send(events.PlaneClosing())
            try:
                self._session.close()
            except ContractViolation as error:
                self._remark(f"in the end: {error}")
            closing = self._newly_starting()
        self.pipe.send(events.SessionFinished(closing))

    def _report_processes(self, seconds: float) -> None:
        """Report 0.0 when a check's processes start, then the seconds: they extend its deadline."""
        if self._in_flight:
            self.pipe.send(events.ProcessesChanging(seconds))

    def _remark(self, text: str) -> None:
        self.pipe.send(events.RemarkMade(text))

    # -- one check ---------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Set this turn's seed; skip the rest of a turn in which a check was broken."""
        turn = turn_of(item)
        item.config.option.rlconform_seed = self._seed + turn
        if turn in self._shown:
            pytest.skip("this turn has shown it")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Report the check's start and end; after a failure, test whether the plane still works."""
        if self.enough.passes_over(item):
            return (yield)
        self._in_flight = check_id(item)
        self._calls.restart(self._in_flight)
        self.pipe.send(events.CheckBegan(self._in_flight))
        started = time.monotonic()
        done = yield
        self._in_flight = ""
        drop_records(item)
        if self._watchdog is not None:
            self._watchdog.watch(None)
        result = self._results.pop(item.nodeid, None)
        if result is not None:
            result = replace(
                result,
                seconds=time.monotonic() - started,
                start_seconds=self._newly_starting(),
                warnings=self._warnings.pop(item.nodeid, []),
            )
            self._send(events.CheckEnded(result))
            if result.outcome in BROKEN and self._option("--rlconform-turns") > 1:
                self._shown.add(turn_of(item))
            self._ensure_healthy(item, result)
        return done

    def _send(self, event: events.CheckEnded | events.ChangeFound) -> None:
        """Send a result to the runner; its requirement may need no more checks."""
        self.pipe.send(event)
        self.enough.shown.note(event.result, self.session.target.capabilities)

    def _newly_starting(self) -> float:
        """Return the seconds in which planes and processes started or ended since the last call."""
        before, self._starting_seconds = self._starting_seconds, self.session.starting.seconds
        return self._starting_seconds - before

    def new_recording(self, in_detail: bool = True) -> Recording:
        """Return a recording whose calls go to the calls file, and which the watchdog watches.

        Without detail it writes no script and looks for no changes: both take long for many rows.
        """
        recording = Recording(
            lambda call: self._calls.write(call) if call else self._calls.restart(self._in_flight),
            self._hangs.given_up,
            interruptible=not self.pipe.watched,
            writes_source=in_detail and self._option("rlconform_scripts"),
            watches_changes=in_detail,
        )
        if self._watchdog is not None:
            self._watchdog.watch(recording)
        return recording

    def _ensure_healthy(self, item: pytest.Item, result: CheckResult) -> None:
        """Make sure that the next check has a plane that works, or end this process."""
        session = self.session
        if ends_plane(item):
            restarts = session.target.declares("restart") or not self.pipe.watched
            late = failure_of(session.renew, session.target.timeouts.start) if restarts else ""
            if self.pipe.watched and (late or not restarts):
                self._leave(events.PlaneClosedByCheck())
        elif result.outcome is Outcome.PASS or not self.pipe.watched:
            return
        elif why := session.lost_health():
            text = f"the plane stopped working ({why}); a fresh one was started"
            self._leave(events.PlaneUnhealthy(text))

    def _leave(self, event: events.PlaneClosedByCheck | events.PlaneUnhealthy) -> None:
        """Send the event and end this process; the runner then starts a fresh one."""
        self.pipe.send(event)
        failure_of(self.session.close, self.session.target.timeouts.operation)
        os._exit(UNHEALTHY_PLANE)  # the plane's threads may keep the interpreter from ending

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Turn the exception of a phase into an outcome; the first phase that fails decides it."""
        report = yield
        mark = item.get_closest_marker("requirement")
        if mark is None:
            return report
        before = self._results.get(item.nodeid)
        if call.when == "call" and self._watchdog is not None:
            self._watchdog.watch(None)  # the clean-up's calls are not the check's
        if report.failed:
            row = load_requirements()[mark.args[0]]
            report.sections.append((f"{row.id}: {row.title}", row.sentence))
        recording = item.stash.get(RECORDING, Recording())
        if call.when == "call":
            recording.finish(self.session.target.timeouts.operation)
            error = call.excinfo.value if call.excinfo else None
            self._note_hang(mark.args[0], recording, error)
            if mark.kwargs["changes_results"]:
                recording.changes.forget_results()
            changes = recording.changes.changes()
            if changes and not self.pipe.watched:
                report.outcome, report.longrepr = "failed", changes[0].text
            for change in changes:
                self._report_change(change, recording)
        if before is None or before.outcome is Outcome.PASS:
            result = result_of(item, mark, call.excinfo, recording, self.session)
            self._results[item.nodeid] = result
        return report

    def _report_change(self, change: Change, recording: Recording) -> None:
        """Report a change of arguments or results as one more failed check."""
        self._changes[change.requirement] += 1
        if self._changes[change.requirement] <= MOST_CHANGES:
            result = CheckResult(
                f"{self._in_flight}::{change.requirement}",
                change.requirement,
                Outcome.FAIL,
                evidence=change.text,
                steps=recording.lines(),
            )
            self._send(events.ChangeFound(result))

    def _note_hang(
        self, requirement: str, recording: Recording, error: BaseException | None
    ) -> None:
        """Report a call of the check that has not returned, though the check is over."""
        timeouts = self.session.target.timeouts
        late = recording.overdue(lambda step: allowance(step, timeouts))
        if kind := late.kind if late else getattr(error, "kind", ""):
            self._hangs.note(kind, self._in_flight, requirement)
            self.pipe.send(events.CallAbandoned(self._in_flight, kind))

    def pytest_warning_recorded(self, warning_message: Any, nodeid: str) -> None:
        """Collect violated SHOULDs for the check's result; report rlconform's warnings."""
        if issubclass(warning_message.category, ShouldViolation):
            self._warnings.setdefault(nodeid, []).append(str(warning_message.message))
        elif issubclass(warning_message.category, CleanUpFailed | ActorsLateWarning):
            self._remark(str(warning_message.message))
        elif issubclass(warning_message.category, FewerExamples):
            text = str(warning_message.message)
            self.pipe.send(events.ExamplesCutShort(self._in_flight, text))

"""The pytest plugin: fixtures that open the plane under test, and a report of each check.

    rlconform certify ──▶ child process: pytest -p rlconform.certify.plugin --events-fd N
                     ◀── one JSON line per event: target, opened, plan, begin, end, bye

Under plain ``pytest`` there is no event pipe: the same checks are ordinary tests.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
import traceback
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rlconform.certify.actors import ProcessDied
from rlconform.certify.expect import Blemish
from rlconform.certify.outcome import CheckResult, Outcome, PlannedCheck
from rlconform.certify.partition import Partition
from rlconform.certify.recorder import Recording, RecordingClient, shorten
from rlconform.certify.reproducer import render_reproducer
from rlconform.certify.resolve import resolve_target
from rlconform.certify.session import PlaneSession, failure_of
from rlconform.contract import LEVELS, ConfigError, DataPlaneClient, Level, Target

#: Exit status of a child whose plane no longer works: the runner starts a fresh one.
SICK_PLANE = 70


class CleanUpFailed(UserWarning):
    """A check could not clear its rows; later checks use other partitions."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the checks; the last ones are the runner's own."""
    group = parser.getgroup("rlconform", "data plane conformance")
    group.addoption("--target", default="memory", help="plane to check (see rlconform certify)")
    group.addoption("--target-config", default="{}", help="configuration mapping, as JSON")
    group.addoption("--level", default=None, choices=LEVELS, help="default: what it declares")
    group.addoption("--events-fd", type=int, default=None, help="pipe of the certify runner")
    group.addoption("--only", default=None, help="file with the ids of the checks to run")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and, under the runner, the event pipe."""
    config.addinivalue_line("markers", "requirement(id): the requirement that a check checks")
    config.addinivalue_line("markers", "gpu: needs a CUDA device")
    fd = config.getoption("--events-fd")
    config.pluginmanager.register(Checks(config, Events(fd)), "rlconform-checks")


class Events:
    """The pipe to the runner; without one, nothing is sent."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        if fd is not None:
            os.set_inheritable(fd, False)  # the plane's processes must not keep it open

    @property
    def watched(self) -> bool:
        """Whether a runner listens."""
        return self._fd is not None

    def send(self, kind: str, **body: Any) -> None:
        """One event, one line."""
        if self._fd is not None:
            data = (json.dumps({"event": kind, **body}) + "\n").encode()
            while data:
                data = data[os.write(self._fd, data) :]


class Checks:
    """Hooks and state of one pytest run over one target."""

    def __init__(self, config: pytest.Config, events: Events) -> None:
        self.events = events
        self._spec: str = config.getoption("--target")
        self._config: dict[str, Any] = json.loads(config.getoption("--target-config"))
        self._level: Level | None = config.getoption("--level")
        only = config.getoption("--only")
        self._only = set(Path(only).read_text("utf-8").split("\n")) if only else None
        self._session: PlaneSession | None = None
        self._plan: list[PlannedCheck] = []
        self._results: dict[str, CheckResult] = {}
        self._warnings: dict[str, list[str]] = {}

    # -- the plane ---------------------------------------------------------------------------

    @property
    def session(self) -> PlaneSession:
        """The plane under test; the target is resolved the first time it is asked for."""
        if self._session is None:
            target = resolve_target(self._spec)
            level = self._level or target.level
            self._session = PlaneSession(self._spec, target, self._config, level)
        return self._session

    def pytest_sessionstart(self) -> None:
        """Under the runner: open the plane first, to tell a plane that doesn't start."""
        if not self.events.watched:
            return
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        started = time.monotonic()
        try:
            target = self.session.target
            self.events.send("target", **describe(target), level=self.session.level)
            self.session.owner()
        except Exception as error:  # noqa: BLE001 - a plane may fail to start in any way
            known = isinstance(error, ConfigError)
            self.events.send(
                "start_failed",
                message=str(error) if known else f"{type(error).__name__}: {shorten(str(error))}",
                detail=traceback.format_exc(),
            )
            pytest.exit("the plane does not start", returncode=SICK_PLANE)
        self.session.note_health()
        self.events.send("opened", seconds=time.monotonic() - started)

    def pytest_sessionfinish(self) -> None:
        """Close the plane."""
        if self._session is not None:
            self._session.close()
        self.events.send("bye")

    # -- the plan ----------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out what this level and target don't call for."""
        kept: list[pytest.Item] = []
        dropped: list[pytest.Item] = []
        for item in items:
            check = self._planned(item)
            if check is not None:
                self._plan.append(check)
            wanted = not self.events.watched if check is None else not check.left_out
            if self._only is not None and (check is None or check.id not in self._only):
                wanted = False
            (kept if wanted else dropped).append(item)
        if dropped:
            config.hook.pytest_deselected(items=dropped)
        items[:] = sorted(kept, key=ends_plane)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell the runner the plan, with what ``-k`` left out of it."""
        selected = {check_id(item) for item in session.items}
        plan = [
            check
            if check.left_out or check.id in selected
            else replace(check, left_out="not selected")
            for check in self._plan
        ]
        self.events.send("plan", checks=[asdict(check) for check in plan])

    def _planned(self, item: pytest.Item) -> PlannedCheck | None:
        mark = item.get_closest_marker("requirement")
        if mark is None:
            return None
        capability = mark.kwargs["capability"]
        declared = self.session.target.capabilities.get(capability)
        needs = next((level for level in LEVELS if f"/{level}/" in f"/{check_id(item)}"), "unit")
        left_out = ""
        if LEVELS.index(needs) > LEVELS.index(self.session.level):
            left_out = f"needs level {needs}"
        elif isinstance(declared, str):
            left_out = f"the target declares no {capability}: {declared}"
        return PlannedCheck(check_id(item), mark.args[0], capability, needs, left_out)

    # -- one check ---------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Report the check's begin and end; look whether the plane survived a failure."""
        self.events.send("begin", id=check_id(item))
        started = time.monotonic()
        done = yield
        result = self._results.pop(item.nodeid, None)
        if result is not None:
            seconds = time.monotonic() - started
            body = asdict(result) | {
                "seconds": seconds,
                "plane_seconds": min(seconds, result.plane_seconds),  # threads call at once
                "warnings": self._warnings.pop(item.nodeid, []),
            }
            self.events.send("end", **body)
            self._look_after(item, result)
        return done

    def _look_after(self, item: pytest.Item, result: CheckResult) -> None:
        """See to it that the next check has a plane that works."""
        session = self.session
        if ends_plane(item):
            restarts = session.target.declares("restart") or not self.events.watched
            if not restarts or failure_of(session.renew, session.target.timeouts.start):
                self._leave("spent", "")
        elif result.outcome is Outcome.PASS or not self.events.watched:
            return
        elif why := session.lost_health():
            self._leave("sick", why)

    def _leave(self, event: str, why: str) -> None:
        """Hand over to a fresh process; the runner starts it when this one is gone."""
        self.events.send(event, why=why)
        failure_of(self.session.close, self.session.target.timeouts.operation)
        os._exit(SICK_PLANE)  # a sick plane's threads may never let the interpreter end

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Turn what a phase raised into an outcome; the first phase that fails decides."""
        report = yield
        mark = item.get_closest_marker("requirement")
        if mark is None:
            return report
        before = self._results.get(item.nodeid)
        if before is None or before.outcome is Outcome.PASS:
            recording = item.stash.get(_RECORDING, Recording())
            self._results[item.nodeid] = result_of(item, mark, call.excinfo, recording, self._spec)
        return report

    def pytest_warning_recorded(self, warning_message: Any, nodeid: str) -> None:
        """Collect blemishes."""
        if issubclass(warning_message.category, Blemish):
            self._warnings.setdefault(nodeid, []).append(str(warning_message.message))
        elif issubclass(warning_message.category, CleanUpFailed):
            self.events.send("note", text=str(warning_message.message))


def describe(target: Target) -> dict[str, Any]:
    """A target as plain data for the report."""
    return {
        "name": target.name,
        "vendor": target.vendor,
        "version": target.version,
        "isolation": target.isolation,
        "capabilities": dict(target.capabilities),
        "timeouts": asdict(target.timeouts),
        "declared_level": target.level,
    }


def check_id(item: pytest.Item) -> str:
    """The check's path below ``suites/`` and its name, the same from any home."""
    path, _, name = item.nodeid.partition("::")
    parts = Path(path).parts
    below = parts[parts.index("suites") + 1 :] if "suites" in parts else parts
    return f"{'/'.join(below)}::{name}"


def ends_plane(item: pytest.Item) -> bool:
    """Whether the check closes the plane that it runs on."""
    mark = item.get_closest_marker("requirement")
    return mark is not None and mark.kwargs["ends_plane"]


_RECORDING = pytest.StashKey[Recording]()


def result_of(
    item: pytest.Item,
    mark: pytest.Mark,
    excinfo: pytest.ExceptionInfo[BaseException] | None,
    recording: Recording,
    spec: str,
) -> CheckResult:
    """The result of a phase: whose fault its exception is, and what to show for it."""
    base: dict[str, Any] = {
        "id": check_id(item),
        "requirement": mark.args[0],
        "capability": mark.kwargs["capability"],
        "plane_seconds": recording.plane_seconds,
    }
    if excinfo is None:
        return CheckResult(**base, outcome=Outcome.PASS)
    error = excinfo.value
    if isinstance(error, pytest.skip.Exception):
        return CheckResult(**base, outcome=Outcome.NOT_TESTED, evidence=str(error))
    base["steps"] = recording.lines()
    if not (isinstance(error, AssertionError) or recording.is_planes(error)):
        evidence = f"{type(error).__name__}: {error}"
        stacks = str(excinfo.getrepr(style="short"))
        return CheckResult(**base, outcome=Outcome.SUITE_ERROR, evidence=evidence, stacks=stacks)
    evidence = recording.blame(error) or str(error).strip()
    outcome = Outcome.CRASH if isinstance(error, ProcessDied) else Outcome.FAIL
    script = render_reproducer(mark.args[0], evidence, recording.steps, spec)
    return CheckResult(**base, outcome=outcome, evidence=evidence, reproducer=script)


# -- fixtures --------------------------------------------------------------------------------


@pytest.fixture
def plane(request: pytest.FixtureRequest) -> Iterator[PlaneSession]:
    """The plane under test; closed after the check where the target asks for a fresh one each."""
    checks: Checks = request.config.pluginmanager.get_plugin("rlconform-checks")  # type: ignore[assignment]
    yield checks.session
    if checks.session.target.isolation == "test":
        checks.session.renew()


@pytest.fixture
def target(plane: PlaneSession) -> Target:
    """What the plane under test says of itself."""
    return plane.target


@pytest.fixture
def recording(request: pytest.FixtureRequest) -> Recording:
    """The client calls of this check."""
    request.node.stash[_RECORDING] = recording = Recording()
    return recording


@pytest.fixture
def client(plane: PlaneSession, recording: Recording) -> RecordingClient:
    """The owner's client."""
    return plane.recorded(recording)


@pytest.fixture
def new_partition(client: DataPlaneClient, target: Target) -> Iterator[Callable[..., Partition]]:
    """Makes partitions with fresh names; their rows are cleared after the check, loudly."""
    made: list[tuple[Partition, set[str]]] = []

    def make(register: bool = True, exact: str = "", **options: Any) -> Partition:
        ids: set[str] = set()
        name = exact or f"p-{uuid.uuid4().hex[:8]}"
        part = Partition(client, name, target.timeouts, ids)
        if register:
            part.register(**options)
        made.append((part, ids))
        return part

    yield make
    for part, ids in () if ends_plane(request.node) else made:
        clean_up(part, ids)


def clean_up(part: Partition, ids: set[str]) -> None:
    """Clear what the check put; a plane that can't is told of, the next check has its own names."""
    try:
        part.clear(sorted(ids))
    except Exception as error:  # noqa: BLE001 - CLEAR-02 and CLEAR-05 judge it, here it is told
        warnings.warn(
            f"rows of {part.id} stay behind, clear_samples raised {type(error).__name__}: "
            f"{shorten(str(error))}",
            CleanUpFailed,
            stacklevel=1,
        )


@pytest.fixture
def part(new_partition: Callable[..., Partition]) -> Partition:
    """A fresh partition with fields x, y, z and tasks train, prev_lp."""
    return new_partition()


@pytest.fixture
def actors(plane: PlaneSession, recording: Recording) -> Callable[[int], list[RecordingClient]]:
    """``actors(n)``: clients attached in n processes, shared with other checks."""

    def take(count: int) -> list[RecordingClient]:
        return [RecordingClient(a, recording, a.name) for a in plane.actors().take(count)]  # type: ignore[arg-type]

    return take


@pytest.fixture
def new_actor(plane: PlaneSession, recording: Recording) -> Callable[[], RecordingClient]:
    """``new_actor()``: a client that attaches now, in a process of its own."""

    def start() -> RecordingClient:
        (client,) = plane.actors().start(1)
        return RecordingClient(client, recording, client.name)  # type: ignore[arg-type]

    return start

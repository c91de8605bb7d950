"""``run_chaos``: runs a scenario once, and returns what is left of the run.

    test ── start ──▶ rlconform train ── events ──▶ files ── LogTail ──▶ is it the moment?
         ── SIGSTOP victim ── still the moment? ─ no ─▶ SIGCONT, look again
                                    └─ yes ─▶ the fault, until the run has ended or is too late
         ── wait: all processes of the run have ended ──▶ Observed

The test waits for the run alone, and no longer than ``START_S`` and the scenario's deadline. A
victim is stopped while the test looks again, so that the moment is still there when the fault
comes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from rlconform.backends.ray_worker_server import forked_workers
from rlconform.check_run.judge import judge_run
from rlconform.events import LogReader
from rlconform.events.schema import ProcessLost, ServerFailed, Trained

from .faults import Kill, Lose, Strike
from .run_state import LogTail, RunState
from .scenarios import PLANES, Scenario
from .verdict import Observed
from .victims import EVENT_ROLES, Role, Victim, find_victim

#: Seconds until the moment of a fault, from the start of the run; a busy machine is slow.
START_S = 240.0
#: Seconds from the end of the run to that of its processes; a busy machine is slow.
GONE_S = 30.0
_LOOK_S = 0.003
#: Generations that take long enough to be struck.
_LONG_RESPONSES = ("generation.max_new_tokens=40", "policy.max_total_sequence_length=48")
_FAMILY_S = 0.3
_FOLDER = Path(__file__).parent
_SERVER = _FOLDER.parents[2] / "fixtures/servers/tiny_completions.py"


def run_chaos(scenario: Scenario, plane: str, folder: Path) -> Observed:
    """Run the scenario on a plane, with all files in ``folder``."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(_generation_server(folder / f"server{i}.txt"))
            for i in range(scenario.servers)
        ]
        command = _command(scenario, plane, folder, [server.url for server in servers])
        run = stack.enter_context(_run(command, folder))
        if isinstance(scenario.fault, Lose):
            victim = None
            began = time.monotonic()
            exit_code = run.wait(began + START_S + scenario.deadline_s)
        else:
            victim = run.victim_at_the_moment(scenario, servers)
            began = time.monotonic()
            exit_code = run.wait(
                began + scenario.deadline_s, Strike(scenario.fault, victim.process)
            )
        runs = [run]
        if scenario.resumed and exit_code is not None:  # at once: parts of the first may be left
            runs.append(stack.enter_context(_run(command, folder)))
            exit_code = runs[-1].wait(time.monotonic() + START_S + scenario.deadline_s)
        left = [name for each in runs for name in each.left()] if exit_code is not None else []
        return _observed(scenario, folder, victim, exit_code, time.monotonic() - began, left)


def _command(scenario: Scenario, plane: str, folder: Path, urls: list[str]) -> list[str]:
    """Return the command line of the run."""
    program = ["-m", "rlconform", "train"]
    if isinstance(scenario.fault, Lose):
        program = [str(_FOLDER / "lossy_train.py"), scenario.fault.message]
    http = f"{{endpoints: {urls}, backoff_s: 0.05, connect_timeout_s: 2.0}}"
    return [
        sys.executable, *program, "tiny_llama_copy_async", f"data_plane={PLANES[plane]}",
        f"grpo.max_num_steps={scenario.steps}", *_LONG_RESPONSES,
        "async_rl.rollout_failure.backoff_base_s=0.1",
        f"logger.events_dir={folder / 'events'}", f"logger.log_dir={folder / 'logs'}",
        "logger.tensorboard_enabled=false", f"checkpointing.checkpoint_dir={folder / 'saved'}",
        *(("generation.backend=http", f"generation.http={http}") if urls else ()),
        *scenario.overrides,
    ]  # fmt: skip


class _Server:
    """A server that generates, and what it has written of itself."""

    def __init__(self, process: subprocess.Popen[str], journal: Path) -> None:
        assert process.stdout is not None
        self.url = process.stdout.readline().strip()
        self.victim = Victim(psutil.Process(process.pid), self._busy, self.url)
        self._journal = journal

    def _busy(self) -> bool:
        """Whether a completion has begun and not ended."""
        lines = self._journal.read_text("utf-8").splitlines()
        return lines.count("started") > lines.count("ended")


@contextmanager
def _generation_server(journal: Path) -> Iterator[_Server]:
    command = [sys.executable, str(_SERVER), "--chunk", "1", "--journal", str(journal)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield _Server(process, journal)
        finally:
            process.kill()


class _Run:
    """A run in a process of its own, and its family: what it has started, and its actors."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._driver = psutil.Process(process.pid)
        self._family: dict[psutil.Process, None] = {self._driver: None}
        self._looked = 0.0
        self._tail, self._state = LogTail(folder / "events"), RunState()

    def victim_at_the_moment(self, scenario: Scenario, servers: list[_Server]) -> Victim:
        """Wait for the moment of the fault; return the victim, which is stopped."""
        due = time.monotonic() + START_S
        while time.monotonic() < due:
            assert self._process.poll() is None, "expected the run to reach the moment of the fault"
            self._look()
            if scenario.victim is Role.GENERATION_SERVER:
                victim: Victim | None = servers[-1].victim
            else:
                victim = find_victim(scenario.victim, self._state, self._family, scenario.rank)
            if victim is not None and self._is_moment(scenario, victim):
                os.kill(victim.process.pid, signal.SIGSTOP)
                self._look()
                if self._is_moment(scenario, victim):
                    return victim
                os.kill(victim.process.pid, signal.SIGCONT)
            time.sleep(_LOOK_S)
        raise AssertionError(f"expected the moment of the fault within {START_S:g} s")

    def _is_moment(self, scenario: Scenario, victim: Victim) -> bool:
        if self._state.steps < scenario.after_steps:
            return False
        return scenario.when == "any" or victim.busy() == (scenario.when == "busy")

    def wait(self, due: float, strike: Strike | None = None) -> int | None:
        """Wait for the end; return the exit code, or None if it is too late."""
        began = time.monotonic()
        while (code := self._process.poll()) is None and time.monotonic() < due:
            self._look()
            if strike is not None:
                strike.go_on(time.monotonic() - began)
            time.sleep(_LOOK_S)
        return code

    def left(self) -> list[str]:
        """Wait for the end of the family; kill and return the processes that are left."""
        _, left = psutil.wait_procs(list(self._family), GONE_S)
        names = []
        for process in left:
            with suppress(psutil.NoSuchProcess):
                names.append(" ".join(process.cmdline())[:80])
                process.kill()
        return names

    def _look(self) -> None:
        """Read new events; now and then note new processes."""
        for record in self._tail.poll():
            self._state.observe(record)
        if time.monotonic() > self._looked + _FAMILY_S:
            self._family |= dict.fromkeys(forked_workers())
            with suppress(psutil.NoSuchProcess):
                self._family |= dict.fromkeys(self._driver.children(recursive=True))
            self._looked = time.monotonic()


def _environment() -> dict[str, str]:
    """Return the variables of a run, whose actors get the priority of other processes.

    Ray's default is lower, so on a busy machine they hardly run, and deadlines pass.
    """
    return {**os.environ, "RAY_worker_niceness": "0"}


@contextmanager
def _run(command: list[str], folder: Path) -> Iterator[_Run]:
    """Start the command in ``folder``; nothing of it is left after the block."""
    with ExitStack() as stack:
        out, err = (
            stack.enter_context((folder / name).open("ab")) for name in ("stdout.txt", "stderr.txt")
        )
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stdout=out, stderr=err)
        run = _Run(process, folder)
        try:
            yield run
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            run.left()


def _observed(
    scenario: Scenario,
    folder: Path,
    victim: Victim | None,
    exit_code: int | None,
    seconds: float,
    left: list[str],
) -> Observed:
    """Read the log of the run that has ended."""
    stderr = (folder / "stderr.txt").read_text("utf-8")
    files = sorted((folder / "events").glob("events-*.jsonl"))
    if not files:
        return Observed(exit_code, seconds, stderr, left=left)
    lost = [name for one in LogReader(files) if (name := _lost_by(one.event))]
    report = judge_run([folder / "events"])
    prompts = report.declared.prompts_per_step if report.declared is not None else None
    return Observed(
        exit_code,
        seconds,
        stderr,
        report.ended,
        report.not_clean(),
        len({one.event.group_id for one in LogReader(files) if isinstance(one.event, Trained)}),
        scenario.steps * (prompts or 0),
        _named(scenario, victim),
        lost,
        left,
    )


def _named(scenario: Scenario, victim: Victim | None) -> str:
    """Return the name that the log must have of a victim that was killed; "" if it has none."""
    if victim is None or not isinstance(scenario.fault, Kill):
        return ""
    if scenario.victim is Role.GENERATION_SERVER:
        return victim.url
    role = EVENT_ROLES.get(scenario.victim)
    return f"{role} {victim.process.pid}" if role else ""


def _lost_by(event: object) -> str:
    """Return the name of what an event says to be lost; "" if it says nothing of the kind."""
    match event:
        case ProcessLost(lost=source):
            return f"{source.role} {source.pid}"
        case ServerFailed(server=url):
            return url
    return ""

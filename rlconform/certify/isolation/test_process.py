"""Test processes as the runner holds them: started, listened to, ended with all they left."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from rlconform._resources import resource_dir

#: Every process of a run carries this variable, so that none outlives the run unseen.
RUN_MARK = "RLCONFORM_RUN"

#: One thread for each torch operation, unless the user says otherwise: so Ray and torchrun start
#: their workers. Processes whose operations each take all cores wait for one another: with four of
#: them on two cores 16 copies of 256 KiB took 62 ms, and 4 ms with a thread each.
THREADS = MappingProxyType({"OMP_NUM_THREADS": "1"})

#: Exit status of pytest, see ``pytest.ExitCode``.
_USAGE_ERROR = 4


class Workspace:
    """A run's private folder and the mark of its processes; gone when the run ends."""

    def __init__(self, extra: Mapping[str, str] = MappingProxyType({})) -> None:
        self._extra = extra
        # Short, because Ray puts Unix sockets below it and their paths are limited to 107 bytes.
        self.path = Path(tempfile.mkdtemp(prefix="rlc-"))
        self.mark = uuid.uuid4().hex
        (self.path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n", "utf-8")

    def environment(self) -> dict[str, str]:
        """The test process's environment, which every process of the plane inherits.

        Modules in the current folder are found there as they are from the command line.
        """
        kept = {k: v for k, v in os.environ.items() if k not in {"PYTEST_ADDOPTS", "RAY_ADDRESS"}}
        path = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
        return kept | {
            RUN_MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(self.path),
            **self._extra,
        }

    def end_leftovers(self, spare: int | None = None, grace_s: float = 0.0) -> list[str]:
        """Kill what still carries the run's mark, except the pid ``spare``; what it was.

        Processes that end by themselves within ``grace_s`` were on their way and are not told of.
        """
        left = [p for p in psutil.process_iter() if p.pid != spare and self._is_ours(p)]
        _, left = psutil.wait_procs(left, timeout=grace_s)
        names = [name for name in map(_end, left) if name]
        psutil.wait_procs(left, timeout=10)
        return names

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            ours: bool = process.environ().get(RUN_MARK) == self.mark
        except (psutil.Error, OSError):
            return False
        return ours and process.pid != os.getpid()

    def close(self) -> None:
        """End what is left and remove the folder."""
        self.end_leftovers()
        shutil.rmtree(self.path, ignore_errors=True)


class ForkServer:
    """Starts test processes one after another and hears their events.

    Args:
        extra: Variables of their environment, beside this process's.
    """

    def __init__(self, extra: Mapping[str, str] = MappingProxyType({})) -> None:
        self._workspace = Workspace(extra)
        self._closed = False
        self._started = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()

    def start(self, options: Sequence[str], files: Sequence[str]) -> TestProcess:
        """Start a test process that runs the checks in ``files`` with these pytest options.

        Raises:
            RuntimeError: The nursery was closed.
        """
        if self._closed:
            raise RuntimeError("the nursery was closed")
        if self._process is None or self._process.poll() is not None:
            self._open()
        assert self._process is not None
        assert self._process.stdin is not None
        self._started += 1
        suites = resource_dir("suites")
        log = self._workspace.path / f"child-{self._started}.log"
        log.touch()
        job = {
            "number": self._started,
            "log": str(log),
            "options": [
                *("-q", "-c", str(self._workspace.path / "pytest.ini"), "--rootdir", str(suites)),
                *("-p", "no:cacheprovider", "-p", "no:faulthandler"),
                *("-p", "no:logging", "-s"),  # what a plane prints goes to the log as it comes
                *("--import-mode", "importlib", *options),
                *(str(suites / name) for name in files),
            ],
        }
        self._process.stdin.write((json.dumps(job) + "\n").encode())
        self._process.stdin.flush()
        return TestProcess(self._events, self._started, log)

    def _open(self) -> None:
        reading, writing = os.pipe()
        self._events = queue.Queue()
        with (self._workspace.path / "nursery.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rlconform.certify.isolation.forkserver", str(writing)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=THREADS | self._workspace.environment(),
                pass_fds=[writing],
                start_new_session=True,  # Ctrl-C is the runner's to handle
            )
        os.close(writing)
        threading.Thread(target=_read, args=(reading, self._events), daemon=True).start()

    def note(self, lines: Sequence[str]) -> str:
        """Write lines to a file that test processes can read; its path."""
        path = self._workspace.path / "only.txt"
        path.write_text("\n".join(lines), "utf-8")
        return str(path)

    def close(self) -> None:
        """End every process that is left, and remove what was written; nothing starts any more."""
        self._closed = True
        self._workspace.close()

    def end_leftovers(self, grace_s: float = 0.0) -> list[str]:
        """Kill what a test process left running, and what is not gone after ``grace_s``; names."""
        spare = self._process.pid if self._process else None
        return self._workspace.end_leftovers(spare, grace_s)


def _read(reading: int, events: queue.Queue[dict[str, Any]]) -> None:
    with os.fdopen(reading, "r", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                events.put(json.loads(line))
            except json.JSONDecodeError:  # cut short by the process's death
                continue
    events.put({"event": "ended", "number": None, "code": -signal.SIGKILL})


class TestProcess:
    """One test process. ``next_event`` waits for its events; ``end`` always ends it."""

    def __init__(self, events: queue.Queue[dict[str, Any]], number: int, log: Path) -> None:
        self._events, self._number, self._log = events, number, log
        self._pid: int | None = None
        self._code: int | None = None

    def next_event(self, deadline: float) -> dict[str, Any] | None:
        """The next event; ``None`` once the process has ended and its events are read.

        Raises:
            TimeoutError: Nothing came before ``deadline`` (of ``time.monotonic``).
        """
        while self._code is None:
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError from None
            match event["event"]:
                case "started" if event["number"] == self._number:
                    self._pid = event["pid"]
                case "ended" if event["number"] in {self._number, None}:
                    self._code = event["code"]
                case "started" | "ended":
                    continue
                case _:
                    return event
        return None

    def stacks(self, patience_s: float = 3.0) -> str:
        """What each thread was doing, written by the process's own fault handler on a signal."""
        before = last = self._log.stat().st_size
        if self._pid is None or self._code is not None:
            return self.tail()
        self._send(signal.SIGUSR1)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            look_again = time.monotonic() + 0.1
            with contextlib.suppress(TimeoutError):
                while self.next_event(look_again) is not None:
                    continue
                break  # it has ended
            size = self._log.stat().st_size
            if before < last == size:  # the handler writes line by line, and has come to its end
                break
            last = size
        return self.tail(since=before)

    def tail(self, since: int = 0, lines: int = 60) -> str:
        """The end of what the process printed."""
        with self._log.open("rb") as log:
            log.seek(since)
            text = log.read().decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])

    def refused(self) -> str:
        """What pytest says of options that it can't use, such as a mistyped ``-k``; else ""."""
        if self._code != _USAGE_ERROR:
            return ""
        return self.tail().strip().rpartition("\n")[2].removeprefix("ERROR: ")

    def how_it_ended(self) -> str:
        """Exit status or signal, in words."""
        if self._code is None:
            return "did not end"
        if self._code < 0:
            return f"was killed by {signal.Signals(-self._code).name}"
        return f"exited with status {self._code}"

    def end(self, grace_s: float) -> None:
        """Wait ``grace_s`` for the process to end by itself, then kill it."""
        for wait_s in (grace_s, 10.0):
            deadline = time.monotonic() + wait_s
            try:
                while self.next_event(deadline) is not None:
                    continue
            except TimeoutError:
                self._send(signal.SIGKILL)
            else:
                return

    def _send(self, wanted: signal.Signals) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(self._pid, wanted)


def _end(process: psutil.Process) -> str:
    """Kill the process; its name, or "" if it was gone already."""
    try:
        name = f"{process.name()} (pid {process.pid})"
        process.kill()
    except psutil.NoSuchProcess:
        return ""
    return name

"""The test process: started, listened to, and ended with all that it left behind."""

from __future__ import annotations

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from rlconform.resources import resource_dir

#: Every process of a run carries this variable, so that none outlives the run unseen.
RUN_MARK = "RLCONFORM_RUN"

_INI = "[pytest]\naddopts = -p rlconform.certify.plugin --strict-markers\n"


class Workspace:
    """A run's private folder and the mark of its processes; gone when the run ends."""

    def __init__(self) -> None:
        # Short, because Ray puts Unix sockets below it and their paths are limited to 107 bytes.
        self.path = Path(tempfile.mkdtemp(prefix="rlc-"))
        self.mark = uuid.uuid4().hex
        self.ini = self.path / "pytest.ini"
        self.ini.write_text(_INI, "utf-8")

    def environment(self) -> dict[str, str]:
        """The test process's environment, which every process of the plane inherits.

        Modules beside the current folder are found there as they are from the command line.
        """
        kept = {k: v for k, v in os.environ.items() if k not in {"PYTEST_ADDOPTS", "RAY_ADDRESS"}}
        path = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
        return kept | {
            RUN_MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(self.path),
        }

    def end_leftovers(self) -> list[str]:
        """Kill whatever still carries the run's mark; what it was, in words."""
        left = [process for process in psutil.process_iter() if self._is_ours(process)]
        for process in left:
            _kill(process)
        psutil.wait_procs(left, timeout=10)
        return [name for name in map(_name_of, left) if name]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            ours: bool = process.environ().get(RUN_MARK) == self.mark
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess, OSError):
            return False
        return ours and process.pid != os.getpid()

    def close(self) -> None:
        """End what is left and remove the folder."""
        self.end_leftovers()
        shutil.rmtree(self.path, ignore_errors=True)


class Child:
    """One test process. ``next_event`` waits for its events; ``end`` always ends it."""

    def __init__(self, workspace: Workspace, options: Sequence[str], number: int) -> None:
        self.log = workspace.path / f"child-{number}.log"
        reading, writing = os.pipe()
        suites = resource_dir("suites")
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-c", str(workspace.ini)),
            *("--rootdir", str(suites), "-p", "no:cacheprovider", "-p", "no:faulthandler"),
            *("--import-mode", "importlib", "--events-fd", str(writing), *options),
            *(str(suites / level / "contract") for level in ("unit", "functional")),
        ]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=workspace.environment(),
                pass_fds=[writing],
                start_new_session=True,
            )
        os.close(writing)
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, args=(reading,), daemon=True).start()

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, "r", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.endswith("\n"):  # a line cut short by the process's death says nothing
                    self._events.put(json.loads(line))
        self._events.put(None)

    def next_event(self, deadline: float) -> dict[str, Any] | None:
        """The next event; ``None`` once the process is gone and its events are read.

        Raises:
            TimeoutError: Nothing came before ``deadline`` (of ``time.monotonic``).
        """
        while True:
            # A process of the plane's may hold the pipe open after the child's death, so the
            # pipe's end is not waited for alone.
            step = min(1.0, deadline - time.monotonic())
            try:
                return self._events.get(timeout=max(step, 0.0))
            except queue.Empty:
                if self._process.poll() is not None and self._events.empty():
                    return None
                if time.monotonic() >= deadline:
                    raise TimeoutError from None

    def stacks(self, patience_s: float = 3.0) -> str:
        """What each thread was doing, written by the process's own fault handler on a signal."""
        before = self.log.stat().st_size
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + patience_s
        while self.log.stat().st_size == before and time.monotonic() < deadline:
            try:
                self._process.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        return self.tail(since=before)

    def tail(self, since: int = 0, lines: int = 60) -> str:
        """The end of what the process printed."""
        with self.log.open("rb") as log:
            log.seek(since)
            text = log.read().decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])

    def how_it_ended(self) -> str:
        """Exit status or signal, in words."""
        code = self._process.wait()
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exited with status {code}"

    def end(self, grace_s: float) -> None:
        """Wait ``grace_s`` for the process to end by itself, then kill it."""
        try:
            self._process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def _name_of(process: psutil.Process) -> str:
    try:
        return f"{process.name()} (pid {process.pid})"
    except psutil.NoSuchProcess:
        return f"pid {process.pid}"

"""``ForkServer``: starts test processes one after another and receives their events.

runner's thread   start() ──one JSON line──▶ forkserver_main, a process
                  TestProcess.next_event()  takes one from the queue
reader thread     event pipe ──▶ queue      ends when all writers have closed the pipe
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from rlconform._resources import resource_dir
from rlconform.certify.isolation.child_process import TestProcess
from rlconform.certify.isolation.events import LONGEST_EVENT, Event, ProcessEnded, decode
from rlconform.certify.isolation.workspace import THREADS, Workspace


class ForkServer:
    """A process that forks test processes, and their folder; ``extra`` overrides environment."""

    def __init__(self, extra: Mapping[str, str] = MappingProxyType({})) -> None:
        self._extra = extra
        self._closed = False
        self._started = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._events: queue.Queue[Event] = queue.Queue()

    @cached_property
    def _workspace(self) -> Workspace:
        """The folder is made when it is first needed: then ``close`` removes it in any case."""
        return Workspace(self._extra)

    def start(
        self, options: Sequence[str], files: Sequence[str], attached_clients: bool = True
    ) -> TestProcess:
        """Start a test process that runs the checks in ``files`` with these pytest options.

        ``attached_clients``: whether checks may attach clients in other processes.
        """
        if self._closed:
            raise RuntimeError("the fork server is closed")
        if self._process is None or self._process.poll() is not None:
            self._process = self._open()
        assert self._process.stdin is not None
        self._started += 1
        suites = resource_dir("suites")
        log = self._workspace.path / f"test-process-{self._started}.log"
        calls = self._workspace.path / f"calls-{self._started}.jsonl"
        log.touch()
        calls.touch()
        job = {
            "number": self._started,
            "attached_clients": attached_clients,
            "log": str(log),
            "folder": str(self._workspace.new_folder(f"plane-{self._started}")),
            "options": [
                *("-q", "-c", str(self._workspace.path / "pytest.ini"), "--rootdir", str(suites)),
                *("-p", "no:cacheprovider", "-p", "no:faulthandler"),
                *("-p", "no:logging", "-s"),  # what a plane prints goes to the log immediately
                # Nobody reads pytest's own report; its last collections of garbage find nothing.
                *("--tb", "native", "-p", "no:unraisableexception"),
                *("--rlconform-calls-file", str(calls)),
                *("--import-mode", "importlib", *options),
                *(str(suites / name) for name in files),
            ],
        }
        self._process.stdin.write((json.dumps(job) + "\n").encode())
        self._process.stdin.flush()
        return TestProcess(self._events, self._started, log, calls)

    def _open(self) -> subprocess.Popen[bytes]:
        reading, writing = os.pipe()
        self._events = queue.Queue()
        with (self._workspace.path / "forkserver.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "rlconform.certify.isolation.forkserver_main", str(writing)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=THREADS | self._workspace.environment(),
                pass_fds=[writing],
                start_new_session=True,  # the runner handles Ctrl-C
            )
        os.close(writing)
        threading.Thread(target=_read, args=(reading, self._events), daemon=True).start()
        return process

    def write_ids(self, ids: Sequence[str]) -> str:
        """Write ids of checks to a file for the option ``--only``; return its path."""
        path = self._workspace.path / "only.txt"
        path.write_text("\n".join(ids), "utf-8")
        return str(path)

    def close(self) -> None:
        """End all processes and remove the folder; no test process can be started after this."""
        self._closed = True
        if "_workspace" in vars(self):
            self._workspace.close(self._process.pid if self._process else None)

    def end_leftovers(self, grace_s: float = 0.0) -> list[str]:
        """Kill processes that a test process left running after ``grace_s``; return their names."""
        fork_server = self._process.pid if self._process else None
        return self._workspace.end_leftovers(fork_server, grace_s)


def _read(reading: int, events: queue.Queue[Event]) -> None:
    with os.fdopen(reading, "rb") as lines:
        while line := lines.readline(LONGEST_EVENT):
            if event := decode(line):
                events.put(event)
    events.put(ProcessEnded(None, -signal.SIGKILL))

"""Nemeses: what a check does to a process, and how it is undone.

    Kill      SIGKILL                                   for ever
    Stop      SIGSTOP ── seconds ──▶ SIGCONT
    Slow      SIGSTOP, SIGCONT in turn, so that the process gets a tenth of its time
    CloseConnections   the kernel resets the process's connections (``ss -K``)

A nemesis runs in the check's own thread and returns a ``ProcessFault``: what was done, and when.
Whatever happens, a stopped process continues before the nemesis returns.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import psutil

#: Seconds of one turn of a slowed process, and the share of them in which it runs.
_TURN_S, _SHARE = 0.05, 0.1
#: Seconds in which a killed process must have ended; else something else holds it.
_GONE_S = 10.0
_LOOK_S = 0.002


@dataclass(frozen=True)
class ProcessFault:
    """What happened to a process, on the clock of the histories (``time.monotonic()``)."""

    kind: str
    role: str
    pid: int
    start: float  # s
    end: float  # s; the process is well again, or dead
    missed: str = ""  # why the fault did not happen as it should, or ""

    def __str__(self) -> str:
        return f"{self.role} (pid {self.pid}) {self.kind} for {self.end - self.start:.1f} s"


class Nemesis(Protocol):
    """Does something to a process."""

    def strike(self, role: str, pid: int) -> ProcessFault:
        """Do it, undo what can be undone, and return what was done."""


@dataclass(frozen=True)
class Kill:
    """Kills the process, which gets no chance to clean up."""

    def strike(self, role: str, pid: int) -> ProcessFault:
        start, missed = time.monotonic(), ""
        try:
            process = psutil.Process(pid)
            os.kill(pid, signal.SIGKILL)
            if not _gone(process):
                missed = f"{role} was not gone {_GONE_S:g} s after SIGKILL"
        except (psutil.NoSuchProcess, ProcessLookupError):
            missed = f"{role} had ended before it was to be killed"
        return ProcessFault("killed", role, pid, start, time.monotonic(), missed)


@dataclass(frozen=True)
class Stop:
    """Stops the process for some seconds; others can't tell that from a dead network."""

    seconds: float

    def strike(self, role: str, pid: int) -> ProcessFault:
        start = time.monotonic()
        with held(pid):
            time.sleep(self.seconds)  # it is the fault itself: nothing is awaited
        return ProcessFault("stopped", role, pid, start, time.monotonic(), _ended(role, pid))


@dataclass(frozen=True)
class Slow:
    """Lets the process run a tenth of the time for some seconds."""

    seconds: float

    def strike(self, role: str, pid: int) -> ProcessFault:
        start = time.monotonic()
        while time.monotonic() - start < self.seconds:
            with held(pid):
                time.sleep(_TURN_S * (1 - _SHARE))
            time.sleep(_TURN_S * _SHARE)
        return ProcessFault(
            "ten times slower", role, pid, start, time.monotonic(), _ended(role, pid)
        )


@dataclass(frozen=True)
class CloseConnections:
    """Has the kernel reset the process's TCP connections, several times in some seconds."""

    seconds: float

    def strike(self, role: str, pid: int) -> ProcessFault:
        start, closed = time.monotonic(), 0
        while time.monotonic() - start < self.seconds:
            closed += _close_connections(pid)
            time.sleep(_TURN_S)
        missed = "" if closed else f"{role} had no TCP connection, or the kernel closed none"
        return ProcessFault("cut off", role, pid, start, time.monotonic(), missed)


def why_not_close_connections() -> str:
    """Return why this host's connections can't be closed from outside; "" if they can."""
    if shutil.which("ss") is None:
        return "there is no program ss (package iproute2)"
    if os.geteuid() != 0:
        return "only root may close the connections of other processes"
    return ""


def _close_connections(pid: int) -> int:
    """Close the process's established connections; return how many the kernel says it closed."""
    with suppress(psutil.NoSuchProcess):
        links = psutil.Process(pid).net_connections("tcp")
        ends = {(link.laddr.port, link.raddr.port) for link in links if link.raddr}
        if ends:
            match = " or ".join(f"( sport = :{here} and dport = :{there} )" for here, there in ends)
            command = ["ss", "-K", "-H", "state", "established", match]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
            return len(done.stdout.splitlines())
    return 0


@contextmanager
def held(pid: int) -> Iterator[None]:
    """Stop the process for the block, so that what is seen of it stays true meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _gone(process: psutil.Process) -> bool:
    """Wait until the process has ended; its parent may not have collected it yet."""
    due = time.monotonic() + _GONE_S
    while time.monotonic() < due:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(_LOOK_S)
    return False


def _ended(role: str, pid: int) -> str:
    return "" if psutil.pid_exists(pid) else f"{role} ended during the fault"

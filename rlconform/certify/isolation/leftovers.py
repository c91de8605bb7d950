"""Finds and ends the processes that test processes started and left behind.

    marked: the run's mark is in its environment ──┐
    adopted: a descendant of the fork server ──────┴─▶ killed; Python's resource trackers first get
                                                       time to remove shared memory

A process that lost its parent becomes a child of the fork server (``adopt_orphans``), so one that
cleared its environment is found as well.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

#: Environment variable that every process of a run carries, so that all of them can be ended.
RUN_MARK = "RLCONFORM_RUN"

#: Seconds that a resource tracker has to remove what the processes that it watched left.
TRACKER_S = 5.0
#: Age in seconds at which a process is sure to have become the program that it runs. A younger one
#: may be a resource tracker that still looks like the process which forked it.
YOUNG_S = 1.0
#: Times that processes are looked for again after some were killed, as a plane may go on forking.
MOST_ROUNDS = 20
#: Seconds that killed processes may take to end.
END_S = 10.0
#: Seconds between two looks at processes that are no children: no call waits for them.
_LOOK_S = 0.02

_PR_SET_CHILD_SUBREAPER = 36
#: Parent of the kernel's threads.
_KTHREADD = 2
#: Index of the start time in ``/proc/PID/stat``, counted from the field after the name.
_START_TIME = 19
_TRACKER = "multiprocessing.resource_tracker"


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> None:
    """Collect the exit status of adopted processes that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def left_processes(mark: str, fork_server: int | None) -> list[psutil.Process]:
    """Return the running processes of the run; neither the fork server nor this process."""
    found = {p.pid: p for p in _processes() if _has_mark(p, mark)}
    if fork_server is not None:
        with suppress(psutil.Error):
            found |= {p.pid: p for p in psutil.Process(fork_server).children(recursive=True)}
    return [p for pid, p in found.items() if pid not in {fork_server, os.getpid()} and _runs(p)]


def still_running(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until all have ended, at most ``seconds``; return those that have not."""
    deadline = time.monotonic() + seconds
    left = [p for p in processes if _runs(p)]
    while left and (rest := deadline - time.monotonic()) > 0:
        time.sleep(min(_LOOK_S, rest))
        left = [p for p in left if _runs(p)]
    return left


def end_left(mark: str, fork_server: int | None, grace_s: float = 0.0) -> list[str]:
    """End the run's processes; return the names of those that ran on after ``grace_s``."""
    left = still_running(left_processes(mark, fork_server), grace_s)
    left = still_running(left, max(map(_young_for, left), default=0.0))
    names: list[str] = []
    for _ in range(MOST_ROUNDS):
        if not left:
            break
        trackers = [p for p in left if _is_tracker(p)]
        others = [p for p in left if p not in trackers]
        names += [name for name in map(_kill, others) if name]
        still_running(others, END_S)
        late = still_running(trackers, TRACKER_S)
        names += [name for name in map(_kill, late) if name]
        still_running(late, END_S)
        left = left_processes(mark, fork_server)
    return names


def _processes() -> Iterator[psutil.Process]:
    """Yield each process of this host.

    ``psutil.process_iter`` keeps its objects from one call to the next, and takes a process with a
    reused id for the one that ended.
    """
    for pid in psutil.pids():
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return bool(_environment(process).get(RUN_MARK) == mark)
    except (psutil.Error, OSError):
        return False


def _environment(process: psutil.Process) -> dict[str, str]:
    """Return the environment; one that the kernel is still loading is waited for.

    It is empty from the moment a process gives up its old memory in ``exec`` until the kernel has
    laid out the new one. Threads of the kernel have none.
    """
    environment: dict[str, str] = process.environ()
    while not environment and _may_load(process):
        time.sleep(_LOOK_S)
        environment = process.environ()
    return environment


def _may_load(process: psutil.Process) -> bool:
    """Whether the kernel may still be loading the process's program."""
    return process.ppid() != _KTHREADD and _young_for(process) > 0 and _runs(process)


def _runs(process: psutil.Process) -> bool:
    """Whether the process runs; one whose status nobody has collected does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _young_for(process: psutil.Process) -> float:
    """Return the seconds until the process is no longer young; 0.0 if it is not, or has ended.

    ``psutil`` computes the time of creation from the time of boot, which has whole seconds only;
    the kernel counts in hundredths since it booted.
    """
    try:
        fields = Path("/proc", str(process.pid), "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    started = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    return max(0.0, YOUNG_S - age)


def _is_tracker(process: psutil.Process) -> bool:
    try:
        return any(_TRACKER in word for word in process.cmdline())
    except psutil.Error:
        return False


def _kill(process: psutil.Process) -> str:
    """Kill the process; return its name, or "" if it had already ended."""
    try:
        name = f"{process.name()} (pid {process.pid})"
        process.kill()
    except psutil.NoSuchProcess:
        return ""
    return name

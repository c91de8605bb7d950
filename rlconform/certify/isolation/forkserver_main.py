"""The fork server's process, which forks test processes: they start without importing anything.

    ForkServer ──{"number", "options", "log"}──▶ fork server ──fork──▶ test process ──▶ plane
               ◀──── one event pipe: ProcessStarted, the checks' events, ProcessEnded ────┘

It imports what every test process needs (torch, pytest, rlconform) and nothing of the plane: each
fork resolves and opens the target itself, in a process that has loaded no other plane.
"""

from __future__ import annotations

import faulthandler
import importlib
import io
import json
import os
import pkgutil
import signal
import sys
import tempfile
import warnings
from contextlib import suppress
from types import ModuleType
from typing import Any

import _pytest

from rlconform._env import SHARED_RAY
from rlconform._preload import preload
from rlconform.backends.ray_worker_server import (
    NEEDED_BY_WORKERS,
    start_separate_server,
    start_worker_server,
)
from rlconform.certify.adapter_source import distributions_of_packages
from rlconform.certify.isolation.client_actor import NEEDED_BY_CLIENTS
from rlconform.certify.isolation.events import EventPipe, ProcessEnded, ProcessStarted
from rlconform.certify.isolation.leftovers import adopt_orphans, reap_orphans
from rlconform.certify.target import known_targets
from rlconform.contract import load_requirements

#: The plugin that runs the checks, with torch and pytest, and imports of the checks that take long,
#: hypothesis above all.
NEEDED_BY_CHECKS = (
    "rlconform.certify.plugin.plugin",
    "rlconform.certify.scenarios.rollout_pipeline",
    "rlconform.certify.properties.state_machine",
)


def serve(events_fd: int) -> None:
    """Fork a test process for each line of standard input, and report how each one ended."""
    events = EventPipe(events_fd)
    adopt_orphans()
    joins_ray = ["ray"] if SHARED_RAY in os.environ else []
    preload([*NEEDED_BY_CHECKS, *_modules_of_pytest(), *joins_ray])
    _plugins()
    distributions_of_packages()  # every test process needs them
    known_targets()  # and the entry points, to resolve its target and to write scripts
    load_requirements()  # and the requirements, for the marks of its checks
    for line in sys.stdin:
        job = json.loads(line)
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            run_job(job, events_fd)
        events.send(ProcessStarted(job["number"], pid))
        _, status = os.waitpid(pid, 0)
        reap_orphans()
        events.send(ProcessEnded(job["number"], os.waitstatus_to_exitcode(status)))


def _modules_of_pytest() -> list[str]:
    """Return the modules of pytest itself; most are plugins that it imports when it starts."""
    return [each.name for each in pkgutil.iter_modules(_pytest.__path__, "_pytest.")]


def _plugins() -> list[ModuleType]:
    """Return the plugin of the checks and those that it names, all imported.

    pytest looks for each plugin that it has to load itself in the metadata of all distributions.
    """
    from rlconform.certify.plugin import plugin  # noqa: PLC0415 - after ``preload``

    return [*map(importlib.import_module, plugin.pytest_plugins), plugin]


class _Log(io.BufferedIOBase):
    """Writes to a descriptor of its own; what can't be written is dropped."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write the bytes, if that is possible."""
        with suppress(OSError):
            os.write(self._descriptor, data)
        return len(data)


def run_job(job: dict[str, Any], events_fd: int) -> None:
    """Run pytest in the forked process, then exit without the fork server's exit handlers."""
    import pytest  # noqa: PLC0415 - preloaded

    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, standard in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, standard)
    os.chdir(job["folder"])
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - its own buffer
    tempfile.tempdir = None  # the cached value is from before the run's folder was known
    if SHARED_RAY not in os.environ:
        # Forks have this process's salt of ``hash``; workers of real jobs have their own.
        start = start_separate_server if job["attached_clients"] else start_worker_server
        start((*NEEDED_BY_WORKERS, *NEEDED_BY_CLIENTS))
    # pytest's own lines: the plane may close its standard files, or forbid writing to files. Forked
    # workers keep the usual files, which Ray needs.
    sys.stdout = sys.stderr = io.TextIOWrapper(_Log(os.dup(log)), "utf-8", write_through=True)
    faulthandler.enable(log)  # pytest captures standard error; this bypasses it
    faulthandler.register(signal.SIGUSR1, log, all_threads=True)
    warnings.simplefilter("ignore", pytest.PytestAssertRewriteWarning)  # imported before pytest ran
    code = 1
    try:
        code = pytest.main(
            [*job["options"], "--rlconform-events-fd", str(events_fd)],
            plugins=_plugins(),
        )
    finally:
        with suppress(OSError, ValueError):  # the plane may have closed them
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(int(sys.argv[1]))

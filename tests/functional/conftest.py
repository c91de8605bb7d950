"""Fixtures that certify planes: ``certify`` by the command, ``certify_here`` in this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlconform._resources import resource_dir
from rlconform.backends.ray_worker_server import start_separate_server
from rlconform.certify import certify as certification
from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.report_folder import write_report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long tests first, then those that share a Ray: none of them begins last.

    The tests of an ``xdist_group`` run one after another in one process, on one Ray.
    """
    first = ("long", "xdist_group")
    items.sort(key=lambda item: [item.get_closest_marker(mark) is None for mark in first])


@dataclass(frozen=True)
class Certification:
    """The output and the report of a certification."""

    code: int
    stdout: str
    stderr: str
    out: Path

    @property
    def report(self) -> dict[str, Any]:
        """The report; a missing one is an error."""
        loaded: dict[str, Any] = json.loads((self.out / "report.json").read_text("utf-8"))
        return loaded

    def outcomes(self) -> dict[str, str]:
        """Outcome by requirement."""
        return {row["id"]: row["outcome"] for row in self.report["requirements"]}

    def checks(self) -> dict[str, dict[str, Any]]:
        """Checks by id."""
        return {check["id"]: check for check in self.report["checks"]}


@pytest.fixture(scope="session")
def planes() -> Path:
    """Folder of the example and hostile planes."""
    return resource_dir("fixtures") / "planes"


@pytest.fixture(scope="session", autouse=True)
def worker_server() -> None:
    """The Rays that tests start fork their workers; it takes seconds to import torch in each."""
    start_separate_server()


# A shell's background jobs ignore Ctrl-C, and so would the commands that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Reproducers stay as long as they are: a test of its own shortens one.
FAST = ("--shorten", "0")


@pytest.fixture
def certify(tmp_path: Path, planes: Path) -> Callable[..., Certification]:
    """``certify(*arguments)`` runs the command in the planes' folder; no process may remain."""

    def run(
        *arguments: str, timeout_s: float = 1800, out: Path = tmp_path / "report"
    ) -> Certification:
        mark = uuid.uuid4().hex
        done = subprocess.run(
            [sys.executable, "-m", "rlconform", "certify", *arguments, "--out", str(out), *FAST],
            cwd=planes,
            env=os.environ | {"RLCONFORM_TEST": mark},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert processes_with("RLCONFORM_TEST", mark) == []
        return Certification(done.returncode, done.stdout, done.stderr, out)

    return run


@pytest.fixture(scope="session")
def fork_server(planes: Path) -> Iterator[ForkServer]:
    """One fork server for all tests of this process, as starting it takes seconds."""
    path = [str(planes), *filter(None, [os.environ.get("PYTHONPATH")])]
    server = ForkServer({"PYTHONPATH": os.pathsep.join(path)})
    yield server
    server.close()


@pytest.fixture
def certify_here(tmp_path: Path, fork_server: ForkServer) -> Callable[..., Certification]:
    """``certify_here(target, select)``: the report without the command; no process may remain.

    ``effort`` is the share of the generated examples.
    """

    def run(target: str, select: str = "", effort: float = 1.0) -> Certification:
        options = CertifyOptions(target, select=select, effort=effort)
        done = certification.certify(options, fork_server=fork_server)
        assert fork_server.end_leftovers() == []
        out = write_report(done, tmp_path / "report")
        return Certification(done.conclusion.exit_code, "", "", out)

    return run


@pytest.fixture
def running_with() -> Callable[[str, str], list[str]]:
    """``running_with(variable, value)``: names of the processes with this environment variable."""
    return processes_with


@pytest.fixture
def heeding_interrupts() -> Iterator[None]:
    """Child processes handle SIGINT, even if pytest runs in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def processes_with(variable: str, value: str) -> list[str]:
    """Names of the processes whose environment holds the variable with that value."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(variable) == value and process.pid != os.getpid():
                found.append(process.name())
        except (psutil.Error, OSError):
            continue
    return found

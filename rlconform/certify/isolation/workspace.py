"""``Workspace``: a run's private folder, and a mark on every process that the run started."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import psutil

from rlconform.backends.ray_worker import WORKER_SERVER

#: Environment variable that every process of a run carries, so that all of them can be ended.
RUN_MARK = "RLCONFORM_RUN"

#: One thread for each torch operation, unless the user says otherwise, as Ray and torchrun do for
#: their workers. Processes whose operations each use all cores slow each other down: with four of
#: them on two cores 16 copies of 256 KiB took 62 ms, and 4 ms with one thread each.
THREADS = MappingProxyType({"OMP_NUM_THREADS": "1"})


class Workspace:
    """A temporary folder, and the environment (with ``extra``) of the processes that use it."""

    def __init__(self, extra: Mapping[str, str] = MappingProxyType({})) -> None:
        self._extra = extra
        # Short, because Ray puts Unix sockets below it and their paths are limited to 107 bytes.
        self.path = Path(tempfile.mkdtemp(prefix="rlc-"))
        self.mark = uuid.uuid4().hex
        (self.path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n", "utf-8")

    def environment(self) -> dict[str, str]:
        """Return the environment of the plane's processes; they import from the current folder."""
        dropped = {"PYTEST_ADDOPTS", "RAY_ADDRESS", WORKER_SERVER}
        kept = {k: v for k, v in os.environ.items() if k not in dropped}
        path = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
        return kept | {
            RUN_MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(self.path),
            **self._extra,
        }

    def end_leftovers(self, spare: int | None = None, grace_s: float = 0.0) -> list[str]:
        """Kill every process with the run's mark, except the pid ``spare``; return their names.

        Processes that end by themselves within ``grace_s`` are not named.
        """
        left = [p for p in psutil.process_iter() if p.pid != spare and self._is_ours(p)]
        _, left = psutil.wait_procs(left, timeout=grace_s)
        names = [name for name in map(_kill, left) if name]
        psutil.wait_procs(left, timeout=10)
        return names

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            ours: bool = process.environ().get(RUN_MARK) == self.mark
        except (psutil.Error, OSError):
            return False
        return ours and process.pid != os.getpid()

    def close(self) -> None:
        """Kill the run's remaining processes and remove the folder."""
        self.end_leftovers()
        shutil.rmtree(self.path, ignore_errors=True)


def how_it_ended(code: int) -> str:
    """Return the exit status of a process, or the signal that ended it (negative), in words."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with status {code}"


def _kill(process: psutil.Process) -> str:
    """Kill the process; return its name, or "" if it had already ended."""
    try:
        name = f"{process.name()} (pid {process.pid})"
        process.kill()
    except psutil.NoSuchProcess:
        return ""
    return name

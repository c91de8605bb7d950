"""``Workspace``: a run's private folder, and the environment of its processes."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from rlconform.backends.ray_worker import WORKER_SERVER
from rlconform.certify.isolation.leftovers import RUN_MARK, end_left

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
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        path = [os.getcwd(), *map(os.path.abspath, given)]  # the processes run elsewhere
        return kept | {
            RUN_MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(self.path),
            **self._extra,
        }

    def new_folder(self, name: str) -> Path:
        """Make a folder in which a plane's process runs: it may delete it, and not the user's."""
        folder = self.path / name
        folder.mkdir()
        return folder

    def end_leftovers(self, fork_server: int | None = None, grace_s: float = 0.0) -> list[str]:
        """End all processes of the run but the fork server; return the names as ``end_left``."""
        return end_left(self.mark, fork_server, grace_s)

    def close(self, fork_server: int | None = None) -> None:
        """Kill the run's remaining processes, the fork server last, and remove the folder."""
        self.end_leftovers(fork_server)
        self.end_leftovers()
        shutil.rmtree(self.path, ignore_errors=True)


def how_it_ended(code: int) -> str:
    """Return the exit status of a process, or the signal that ended it (negative), in words."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with status {code}"

"""``PlaneHandle``: the runner's access to a plane process, which may crash or hang.

runner ── ask ──▶ PlaneHandle ──── pipe ────▶ plane process (its own process group)
                   waits with a deadline ◀──── answers, or dies
"""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import Pipe
from typing import Any

from rlconform.bench.client_pool import PlaneLost
from rlconform.bench.measurements import MOST_CALLS, Figures, Measurement
from rlconform.certify.isolation.workspace import Workspace, how_it_ended

#: Seconds for rlconform's work: starting Python, importing torch, making batches.
_OWN_S = 120.0

#: Seconds for a plane process to report that a client took too long.
_REPORT_S = 10.0

#: Seconds for a plane to close in.
_CLOSE_S = 15.0


class PlaneHandle:
    """A plane process. It starts immediately; ``kill`` ends it and all that it started."""

    def __init__(self, spec: str, claimers: int, call_s: float) -> None:
        self._call_s = call_s
        self.about: dict[str, Any] = {}
        self._workspace = Workspace()
        self._pipe, theirs = Pipe()
        self._log = self._workspace.path / "plane.log"
        with self._log.open("wb") as log, theirs:
            job = (str(theirs.fileno()), spec, str(claimers), str(call_s))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rlconform.bench.plane_process", *job],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._workspace.environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # the runner handles Ctrl-C
            )

    def await_open(self) -> None:
        """Wait until the plane is open and its clients are attached.

        Raise ``TargetError`` if there is no such target, ``PlaneLost`` if the plane did not start.
        """
        self.about, start_s = self._answer(_OWN_S, "looking the target up")
        # the owner opens the plane, then all clients attach at the same time
        self._answer(2 * start_s + _REPORT_S, "opening the plane")

    def ask(self, measurement: Measurement, method: str, number: int) -> Figures:
        """Run a measurement's method; return its figures, empty for ``prepare`` and ``finish``.

        Raise ``CallRefused`` for a refused call or wrong data, ``PlaneLost`` if the process does
        not answer.
        """
        try:
            self._pipe.send((measurement, method, number))
        except BrokenPipeError as error:
            raise PlaneLost(self._how_it_ended()) from error
        figures: Figures = self._answer(_OWN_S + MOST_CALLS * self._call_s, method)
        return figures

    def dismiss(self) -> None:
        """Let the process close its plane, without waiting for it."""
        self._pipe.close()

    def end(self) -> None:
        """Wait until a dismissed process has closed its plane, then kill what is left of it."""
        self._wait(_CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """Kill the process and all processes that it started."""
        self._pipe.close()
        self._workspace.close()
        self._process.wait()

    def _answer(self, timeout_s: float, what: str) -> Any:
        try:
            if not self._pipe.poll(timeout_s):
                raise PlaneLost(f"it hung: {what} took more than {timeout_s:g} s")
            answer = self._pipe.recv()
        except (EOFError, ConnectionResetError) as error:
            raise PlaneLost(self._how_it_ended()) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _how_it_ended(self) -> str:
        code = self._wait(5.0)
        if code is None:
            return "its process closed its pipe"
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        ended = f"the process that owned the plane {how_it_ended(code)}"
        return f"{ended}: {lines[-1]}" if lines else ended

    def _wait(self, timeout_s: float) -> int | None:
        """Return the exit code; ``None`` if the process still runs after ``timeout_s`` seconds."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

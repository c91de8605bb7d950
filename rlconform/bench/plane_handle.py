"""``PlaneHandle``: the parent's handle of a plane process, which may crash or hang."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from typing import Any

from rlconform.bench.client_pool import Refused
from rlconform.certify.isolation.workspace import Workspace
from rlconform.certify.target import TargetError

#: Seconds for what the plane has no part in: starting Python, importing torch, making batches.
_OWN_S = 120.0

#: Seconds for a station to tell that the plane took too long.
_ANSWER_S = 10.0

#: Seconds for a plane to close in.
_CLOSE_S = 15.0


class PlaneLost(Exception):
    """The station died, hangs or gave up: its plane can't be measured any further."""


class PlaneHandle:
    """A station's process: started at once, awaited later, asked for turns, ended in any case.

    >>> link = Link("memory", claimers=4, call_s=60.0)
    >>> link.await_open()
    >>> link.ask("carry", "tiny", "r0")
    {'put': [0.0012], ...}
    >>> link.end()
    """

    def __init__(self, spec: str, claimers: int, call_s: float) -> None:
        self._call_s = call_s
        self.about: dict[str, Any] = {}
        self._workspace = Workspace()
        self._link, theirs = Pipe()
        self._log = self._workspace.path / "station.log"
        with self._log.open("wb") as log, theirs:
            job = (str(theirs.fileno()), spec, str(claimers), str(call_s))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rlconform.bench.plane_process", *job],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._workspace.environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the run's to handle
            )

    def await_open(self) -> None:
        """Come back once the plane is open and its desks are attached.

        Raises:
            TargetError: There is no such target.
            StationLost: It did not start.
        """
        self.about = self._answer(_OWN_S, "looking the target up")
        # opened by its owner, then by every desk at the same time
        self._answer(2 * self.about["start_s"] + _ANSWER_S, "opening the plane")

    def ask(self, method: str, *arguments: Any, calls: int = 1) -> dict[str, list[float]]:
        """Let the station take a turn of so many client calls; its figures.

        Raises:
            Refused: The plane refused a call, or answered it wrongly.
            StationLost: It did not come back.
        """
        try:
            self._link.send((method, arguments))
        except BrokenPipeError as error:
            raise PlaneLost(self._how_it_ended()) from error
        figures: dict[str, list[float]] = self._answer(_OWN_S + calls * self._call_s, method)
        return figures

    def dismiss(self) -> None:
        """Let the station close its plane, and don't wait for it."""
        self._link.close()

    def end(self) -> None:
        """Dismiss the station and wait until it is gone; end whatever is left of it."""
        self.dismiss()
        self._wait(_CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """End the station and all it started, at once."""
        self._link.close()
        self._workspace.close()
        self._process.wait()

    def _answer(self, timeout_s: float, what: str) -> Any:
        try:
            if not self._link.poll(timeout_s):
                raise PlaneLost(f"it hung: {what} took more than {timeout_s:g} s")
            word, content = self._link.recv()
        except (EOFError, ConnectionResetError) as error:
            raise PlaneLost(self._how_it_ended()) from error
        raising: dict[str, Callable[[str], Exception]] = {
            "unknown": TargetError,
            "refused": Refused,
            "lost": PlaneLost,
        }
        if word in raising:
            raise raising[word](content)
        return content

    def _how_it_ended(self) -> str:
        code = self._wait(5.0)
        if code is None:
            return "its process closed its pipe"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        return f"the process that owned the plane {how}" + (f": {lines[-1]}" if lines else "")

    def _wait(self, timeout_s: float) -> int | None:
        """The exit code, ``None`` while it still runs after ``timeout_s``."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

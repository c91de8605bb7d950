"""``ScriptRunner``: runs scripts one after another, in processes that it can end.

run() ──path──▶ script_runner_main, a process ──forks──▶ the script: it may crash or hang
      ◀─code──                                ◀─waits──
"""

from __future__ import annotations

import selectors
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Self

from rlconform.certify.isolation.workspace import THREADS, Workspace


@dataclass(frozen=True)
class ScriptEnd:
    """How a script ended: its exit code, negative for a signal, and the lines that it printed."""

    code: int
    lines: tuple[str, ...]


class ScriptRunner:
    """A process that forks scripts, and their folder; its end is the end of all they started."""

    def __init__(self) -> None:
        self._workspace = Workspace()
        self._numbers = count(1)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rlconform.certify.isolation.script_runner_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=THREADS | self._workspace.environment(),
            cwd=self._workspace.new_folder("scripts"),
            text=True,
            start_new_session=True,  # the command handles Ctrl-C
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it has imported torch: that is not a script's time

    def run(self, script: str, seconds: float) -> ScriptEnd | None:
        """Run a script; return how it ended, or None if it did not end within ``seconds``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        path = self._workspace.path / f"script_{next(self._numbers)}.py"
        path.write_text(script, "utf-8", "backslashreplace")
        try:
            self._process.stdin.write(f"{path}\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # an earlier script has killed its parent
            return None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            in_time = bool(waiting.select(seconds))
        self._workspace.end_leftovers(self._process.pid)  # also of the plane that it opened
        code = self._process.stdout.readline()
        if not in_time or not code:
            return None
        printed = path.with_name(f"{path.name}.out").read_text("utf-8", "replace")
        return ScriptEnd(int(code), tuple(printed.splitlines()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._workspace.close()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

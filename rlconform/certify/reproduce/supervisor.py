"""The parent of a reproducer: it watches the child that makes the calls, and has the last word.

The exit code comes from what was observed: a violation that the child saw, a call that did not
return, a process that died, or else from the check itself.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlconform.certify.isolation.workspace import THREADS, Workspace
from rlconform.certify.reproduce.verdict import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNDECIDED,
    ReproducerVerdict,
)

#: Names the pipe to the parent in the environment of the child.
EVENTS = "RLCONFORM_REPRODUCER_EVENTS"

#: Seconds for what the plane has no part in: importing torch, starting Ray and its workers.
OWN_PATIENCE_S = 120.0
#: Seconds for a child that has seen all to close the plane.
CLOSING_S = 15.0


class InFlight(NamedTuple):
    """A call that has not returned: what it is, and until when it may take."""

    text: str
    allowed_s: float
    deadline: float


class Supervisor:
    """Runs the script once more as a child and says what came of it.

    Args:
        spec: The target.
        config: Its configuration.
        check: Id of the check that the script was made from.
        requirement: The requirement that it checks.
        seed: What the check's generated examples start from.
        races: Whether chance decides if the check shows the defect, so that it runs repeatedly.
    """

    def __init__(
        self,
        spec: str,
        config: Mapping[str, Any],
        check: str,
        requirement: str,
        seed: int,
        races: bool,
    ) -> None:
        self._spec, self._config = spec, config
        self._check, self._requirement, self._seed, self._races = check, requirement, seed, races
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._in_flight: dict[int, InFlight] = {}
        self._expected = ""  # what the script's own judgement is of

    def run(self) -> int:
        """Play the calls and, where they show nothing, run the check; the exit code."""
        from rlconform.certify.reproduce.rerun_check import run_check  # noqa: PLC0415 - see there

        workspace = Workspace()
        try:
            verdict = self._play(workspace)
        finally:
            workspace.close()
        if verdict is None:
            print("These calls show nothing: the check itself decides.", flush=True)  # noqa: T201
            verdict = run_check(
                self._spec, self._config, self._check, self._requirement, self._seed, self._races
            )
            if verdict.code == NOT_REPRODUCED and self._expected:
                verdict = ReproducerVerdict(NOT_REPRODUCED, self._expected, verdict.got)
        # a call that did not return left its line unfinished
        print(f"\nexpected {_line(verdict.expected)}\ngot {_line(verdict.got)}", flush=True)  # noqa: T201
        return verdict.code

    def _play(self, workspace: Workspace) -> ReproducerVerdict | None:
        reading, writing = os.pipe()
        environment = THREADS | workspace.environment() | {EVENTS: str(writing)}
        child = subprocess.Popen(
            [sys.executable, *sys.argv], env=environment, pass_fds=[writing], start_new_session=True
        )
        os.close(writing)
        threading.Thread(target=self._read, args=(reading,), daemon=True).start()
        try:
            return self._follow(child)
        finally:
            child.kill()
            child.wait()

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, "r", encoding="utf-8") as lines:
            for line in lines:
                self._events.put(json.loads(line))
        self._events.put(None)

    def _follow(self, child: subprocess.Popen[bytes]) -> ReproducerVerdict | None:
        """The child's verdict; ``None`` where it saw no violation."""
        deadline = time.monotonic() + OWN_PATIENCE_S
        while True:
            first = min(self._in_flight.values(), key=lambda call: call.deadline, default=None)
            until = first.deadline if first else deadline
            try:
                event = self._events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return self._late(first)
            deadline = time.monotonic() + OWN_PATIENCE_S
            match event:
                case None:
                    return self._died(child)
                case {"event": "begin", "number": number, "text": text, "allowed_s": allowed_s}:
                    ends = time.monotonic() + allowed_s
                    self._in_flight[number] = InFlight(text, allowed_s, ends)
                case {"event": "end", "number": number}:
                    self._in_flight.pop(number, None)
                case {"event": "verdict", "code": code, "expected": expected, "got": got}:
                    self._let_it_close(child)
                    return ReproducerVerdict(code, expected, got)
                case {"event": "nothing", "expected": expected}:
                    self._expected = expected
                    self._let_it_close(child)
                    return None

    def _late(self, call: InFlight | None) -> ReproducerVerdict:
        if call is None:
            return ReproducerVerdict(
                UNDECIDED, "the script to go on", f"nothing for {OWN_PATIENCE_S:g} s"
            )
        return ReproducerVerdict(
            REPRODUCED,
            f"{call.text} to return within {call.allowed_s:g} s",
            "nothing: it still runs",
        )

    def _died(self, child: subprocess.Popen[bytes]) -> ReproducerVerdict:
        code = child.wait()
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"exited with status {code}"
        )
        if self._in_flight or code < 0:
            calls = " beside ".join(call.text for call in self._in_flight.values())
            return ReproducerVerdict(
                REPRODUCED,
                f"the process that uses the plane to survive {calls or 'these calls'}",
                f"it {how}",
            )
        return ReproducerVerdict(
            UNDECIDED, "a plane that opens and calls that can be judged", f"it {how}"
        )

    def _let_it_close(self, child: subprocess.Popen[bytes]) -> None:
        """Give the child time to close the plane; one that does not is ended by the caller."""
        try:
            child.wait(CLOSING_S)
        except subprocess.TimeoutExpired:
            return


def _line(text: str) -> str:
    return " ".join(text.split())

"""The parent process of a reproducer: starts the child that makes the calls, prints the verdict.

    parent: main thread ◀──queue── reader thread ◀──pipe── child: makes the calls

The main thread waits for the next event, up to the deadline of the calls in flight. The defect is
there if the child reports a violation or dies, or a call hangs. Otherwise the parent runs the check
that failed.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple

from rlconform.certify.isolation.workspace import THREADS, Workspace, how_it_ended
from rlconform.certify.reproduce.render import Origin
from rlconform.certify.reproduce.verdict import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNDECIDED,
    ReproducerVerdict,
)

#: Environment variable of the child that holds the number of the pipe to the parent.
EVENTS = "RLCONFORM_REPRODUCER_EVENTS"

#: Seconds without an event and without a call in flight: importing torch, starting Ray.
OWN_PATIENCE_S = 120.0
#: Seconds that the child has to close the plane after its last event.
CLOSING_S = 15.0


class InFlight(NamedTuple):
    """A call that has not returned: its text, its time limit and its deadline."""

    text: str
    allowed_s: float
    deadline: float


class Supervisor:
    """Runs the script as a child and prints a verdict. For the arguments see ``Reproducer``."""

    def __init__(self, origin: Origin, races: bool) -> None:
        self._origin, self._races = origin, races
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._in_flight: dict[int, InFlight] = {}
        self._expected = ""  # what the script expects, in words

    def run(self) -> int:
        """Run the calls and, if they show no violation, the check. Return the exit code."""
        from rlconform.certify.reproduce.rerun_check import run_check  # noqa: PLC0415 - see there

        workspace = Workspace()
        try:
            verdict = self._run_child(workspace)
        finally:
            workspace.close()
        if verdict is None:
            print("These calls show no violation; running the check that failed.", flush=True)  # noqa: T201
            verdict = run_check(self._origin, self._races)
            if verdict.code == NOT_REPRODUCED and self._expected:
                verdict = ReproducerVerdict(NOT_REPRODUCED, self._expected, verdict.got)
        # starts with a newline, as a call that hangs leaves its line unfinished
        expected, got = (" ".join(text.split()) for text in (verdict.expected, verdict.got))
        print(f"\nexpected {expected}\ngot {got}", flush=True)  # noqa: T201
        return verdict.code

    def _run_child(self, workspace: Workspace) -> ReproducerVerdict | None:
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
        """Return the verdict from the child's events; ``None`` if the calls show no violation."""
        deadline = time.monotonic() + OWN_PATIENCE_S
        while True:
            first = min(self._in_flight.values(), key=lambda call: call.deadline, default=None)
            until = first.deadline if first else deadline
            try:
                event = self._events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return self._overdue(first)
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

    def _overdue(self, call: InFlight | None) -> ReproducerVerdict:
        if call is None:
            got = f"nothing for {OWN_PATIENCE_S:g} s"
            return ReproducerVerdict(UNDECIDED, "the script to go on", got)
        wanted = f"{call.text} to return within {call.allowed_s:g} s"
        return ReproducerVerdict(REPRODUCED, wanted, "nothing: it still runs")

    def _died(self, child: subprocess.Popen[bytes]) -> ReproducerVerdict:
        code = child.wait()
        if self._in_flight or code < 0:
            calls = " beside ".join(call.text for call in self._in_flight.values())
            wanted = f"the process that uses the plane to survive {calls or 'these calls'}"
            return ReproducerVerdict(REPRODUCED, wanted, f"it {how_it_ended(code)}")
        wanted = "a plane that opens and calls that can be judged"
        return ReproducerVerdict(UNDECIDED, wanted, f"it {how_it_ended(code)}")

    def _let_it_close(self, child: subprocess.Popen[bytes]) -> None:
        """Give the child time to close the plane before the caller kills it."""
        with suppress(subprocess.TimeoutExpired):
            child.wait(CLOSING_S)

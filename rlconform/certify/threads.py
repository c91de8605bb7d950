"""Calls in daemon threads, so that a call that hangs does not hang the check.

check's thread   BackgroundCall(...) ──▶ its own thread ──▶ plane
                 result(timeout_s)  waits for the call, at most ``timeout_s``
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.recording.base_exceptions import violation_of
from rlconform.certify.recording.recorder import EndsCheck

#: A deadline in whole milliseconds may be this much earlier than the one asked for, s.
CLOCK_TOLERANCE_S = 0.01

#: Pause between two polls, s.
IDLE_S = 0.0005


class BackgroundCall:
    """A call that runs in a daemon thread; ``result`` waits for the call, up to a deadline."""

    def __init__(self, call: Callable[[], Any], what: str, gate: threading.Event | None = None):
        self._call, self._what, self._gate = call, what, gate
        self._value: Any = None
        self._error: BaseException | None = None
        self.finished = threading.Event()
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        if self._gate is not None:
            self._gate.wait()
        started = time.monotonic()
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - ``result`` raises it
            # no person interrupts a thread, so any other error is the plane's
            ends = isinstance(error, EndsCheck)
            self._error = error if ends else violation_of(error, self._what)
        finally:
            self.seconds = time.monotonic() - started
            self.finished.set()

    def returned_within(self, seconds: float) -> bool:
        """Whether the call returns within ``seconds``; raise the call's error if it raised."""
        if not self.finished.wait(seconds):
            return False
        if self._error is not None:
            raise self._error
        return True

    def wait_briefly(self) -> None:
        """Wait a moment, so that a polling thread does not hold the plane's lock all the time."""
        self.finished.wait(IDLE_S)

    def result(self, timeout_s: float) -> Any:
        """Return the call's result or raise its error; raise a violation after ``timeout_s``."""
        if not self.returned_within(timeout_s):
            due = f"{self._what} to come back within {timeout_s:g} s"
            raise ContractViolation(due, "nothing: it still runs")
        return self._value


def run_concurrently(
    calls: Sequence[Callable[[], Any]], timeout_s: float, what: str = "call"
) -> list[Any]:
    """Start all calls at the same time; return their results in order, or raise the first error."""
    gate = threading.Event()
    running = [BackgroundCall(call, f"{what} {i}", gate) for i, call in enumerate(calls)]
    gate.set()
    deadline = time.monotonic() + timeout_s
    for call in running:
        call.finished.wait(max(0.0, deadline - time.monotonic()))
    for call in running:  # an error explains more than that another call waits
        call.returned_within(0.0)
    return [call.result(max(0.0, deadline - time.monotonic())) for call in running]

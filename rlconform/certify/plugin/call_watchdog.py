"""``Watchdog``: a thread that reports a client call that does not return.

    check's thread   watch(recording) ──▶ watchdog's thread ──on_overdue(call)──▶ event pipe

The check can't report the call, because it waits for it; the runner would only see a late check.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rlconform.certify.recording.recorder import OWNER, TRANSPORT_S, CallRecord, Overdue, Recording
from rlconform.contract import Timeouts


def allowance(step: CallRecord, timeouts: Timeouts) -> float:
    """Return how many seconds a call may take, including a claim's timeout and the transport."""
    waits = step.method == "claim_meta" and step.kwargs.get("blocking", True)
    wait_s = step.kwargs.get("timeout_s", 60.0) if waits else 0.0
    asked = float(wait_s) if isinstance(wait_s, int | float) else 0.0
    way = TRANSPORT_S if step.who != OWNER else 0.0
    return timeouts.operation + timeouts.settle + max(0.0, asked) + way


class Watchdog:
    """Watches one recording at a time; calls ``on_overdue`` for its first overdue call."""

    def __init__(self, timeouts: Timeouts, on_overdue: Callable[[Overdue], None]) -> None:
        self._timeouts, self._on_overdue = timeouts, on_overdue
        self._watched: Recording | None = None
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def watch(self, recording: Recording | None) -> None:
        """Watch the calls of this check, not of the previous one; with ``None``, watch nothing."""
        self._watched = recording

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()

    def _watch(self) -> None:
        interval_s = min(1.0, self._timeouts.operation / 4)
        while not self._stop.wait(interval_s):
            recording = self._watched
            late = recording.overdue(lambda s: allowance(s, self._timeouts)) if recording else None
            if late and self._watched is recording:
                self._on_overdue(late)
                self._watched = None

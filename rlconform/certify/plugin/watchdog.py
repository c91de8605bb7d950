"""A thread that tells the runner of a client call that doesn't come back.

The check itself is stuck in that call and can't; the runner would only see a check that is late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rlconform.certify.recording.recorder import OWNER, TRANSPORT_S, CallRecord, Overdue, Recording
from rlconform.contract import Timeouts


def allowance(step: CallRecord, timeouts: Timeouts) -> float:
    """Seconds that a call may take: a blocking claim owes its answer after its own timeout.

    A call in another process has the kit's own seconds for the way there and back.
    """
    waits = step.method == "claim_meta" and step.kwargs.get("blocking", True)
    wait_s = step.kwargs.get("timeout_s", 60.0) if waits else 0.0
    asked = float(wait_s) if isinstance(wait_s, int | float) else 0.0
    way = TRANSPORT_S if step.who != OWNER else 0.0
    return timeouts.operation + timeouts.settle + max(0.0, asked) + way


class Watchdog:
    """Watches one recording at a time; ``tell`` hears of a call that is overdue, once each."""

    def __init__(self, timeouts: Timeouts, tell: Callable[[Overdue], None]) -> None:
        self._timeouts, self._tell = timeouts, tell
        self._watched: Recording | None = None
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def watch(self, recording: Recording | None) -> None:
        """Watch this check's calls, and no longer those of the check before it."""
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
                self._tell(late)
                self._watched = None

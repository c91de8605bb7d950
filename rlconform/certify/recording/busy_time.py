"""How long something was under way, counted once however many of it ran at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class BusyTime:
    """Runs while at least one ``with stopwatch.running():`` block is open, in any thread.

    ``listener`` hears 0.0 when it starts to run, and the seconds of this stretch when it stops.

    Example:
        stopwatch = Stopwatch()
        with stopwatch.running():
            client.put_samples(...)
        stopwatch.seconds
    """

    def __init__(self, listener: Callable[[float], None] = lambda _seconds: None) -> None:
        self._listener = listener
        self._own = 0.0
        self._stretches: list[tuple[float, float]] = []
        self._from_elsewhere = False
        self._open = 0
        self._since = 0.0
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """What it has counted; of a block that is still open, such as a call that hangs, so far."""
        with self._lock:
            since = [(self._since, time.monotonic())] if self._open else []
            if self._from_elsewhere:
                return merged_seconds([*self._stretches, *since])
            # its own stretches never overlap: they need no merging
            return self._own + sum(end - start for start, end in since)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time until the block ends."""
        self.start()
        try:
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """One more thing is under way."""
        with self._lock:
            if self._open == 0:
                self._since = time.monotonic()
                self._listener(0.0)
            self._open += 1

    def stop(self) -> None:
        """One thing less is under way."""
        with self._lock:
            self._open -= 1
            if self._open == 0:
                now = time.monotonic()
                self._own += now - self._since
                self._stretches.append((self._since, now))
                self._listener(now - self._since)

    def add(self, spans: Iterable[tuple[float, float]]) -> None:
        """Count spans (start, end) that were measured elsewhere, on this machine's clock."""
        with self._lock:
            self._stretches += spans
            self._from_elsewhere = True


def merged_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that at least one of the spans (start, end) covers."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total

"""``BusyTime``: measures how long at least one of several overlapping operations ran."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class BusyTime:
    """The time in which at least one ``with busy.running():`` block is open, in any thread.

    ``listener`` is called with 0.0 when the first block opens, and with the seconds since then when
    the last one closes.
    """

    def __init__(self, listener: Callable[[float], None] = lambda _seconds: None) -> None:
        self._listener = listener
        self._own = 0.0
        self._spans: list[tuple[float, float]] = []
        self._has_remote_spans = False
        self._open = 0
        self._since = 0.0
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """The busy time so far in seconds, including blocks still open (a call that hangs, say)."""
        with self._lock:
            since = [(self._since, time.monotonic())] if self._open else []
            if self._has_remote_spans:
                return merged_seconds([*self._spans, *since])
            # spans of this process never overlap, so they need no merging
            return self._own + sum(end - start for start, end in since)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of the block."""
        with self._lock:
            if self._open == 0:
                self._since = time.monotonic()
                self._listener(0.0)
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if self._open == 0:
                    now = time.monotonic()
                    self._own += now - self._since
                    self._spans.append((self._since, now))
                    self._listener(now - self._since)

    def add(self, spans: Iterable[tuple[float, float]]) -> None:
        """Add spans (start, end) that another process measured with this machine's clock."""
        with self._lock:
            self._spans += spans
            self._has_remote_spans = True


def merged_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Return the seconds covered by at least one of the spans (start, end)."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total

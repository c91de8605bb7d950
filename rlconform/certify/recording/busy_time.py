"""``BusyTime``: measures how long at least one of several overlapping operations ran."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class MergedSpans:
    """Spans (start, end) that are joined where they overlap, and the seconds that they cover.

    Spans come nearly in their order, so adding one takes the same time however many there are.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._starts: list[float] = []
        self._ends: list[float] = []

    def add(self, start: float, end: float) -> None:
        """Add a span."""
        first, after = self._touched(start, end)
        self.seconds += end - start - self.covered(start, end)
        start, end = min([start, *self._starts[first:after]]), max([end, *self._ends[first:after]])
        self._starts[first:after], self._ends[first:after] = [start], [end]

    def covered(self, start: float, end: float) -> float:
        """Return how many seconds of this span the spans cover."""
        first, after = self._touched(start, end)
        touched = zip(self._starts[first:after], self._ends[first:after], strict=True)
        return sum(min(end, e) - max(start, s) for s, e in touched)

    def _touched(self, start: float, end: float) -> tuple[int, int]:
        """Return the range of the spans that overlap this one or end where it begins."""
        return bisect_left(self._ends, start), bisect_right(self._starts, end)


class BusyTime:
    """The time in which at least one ``with busy.running():`` block is open, in any thread.

    ``listener`` is called with 0.0 when the first block opens, and with the seconds since then when
    the last one closes.
    """

    def __init__(self, listener: Callable[[float], None] = lambda _seconds: None) -> None:
        self._listener = listener
        self._spans = MergedSpans()
        self._open = 0
        self._since = 0.0
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """The busy time so far in seconds, including blocks still open (a call that hangs, say)."""
        with self._lock:
            if not self._open:
                return self._spans.seconds
            now = time.monotonic()
            return self._spans.seconds + now - self._since - self._spans.covered(self._since, now)

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
                    self._spans.add(self._since, now)
                    self._listener(now - self._since)

    def add(self, spans: Iterable[tuple[float, float]]) -> None:
        """Add spans (start, end) that another process measured with this machine's clock."""
        with self._lock:
            for start, end in spans:
                self._spans.add(start, end)


def merged_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Return the seconds covered by at least one of the spans (start, end)."""
    merged = MergedSpans()
    for start, end in spans:
        merged.add(start, end)
    return merged.seconds

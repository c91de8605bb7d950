"""``StageTimer``: the seconds of each stage of a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StageTimer:
    """Adds up the seconds spent in named stages.

    Example:
        with timer.stage("generation"):
            ...
        metrics |= timer.take("step")   # {"time/generation": 0.25, "time/step": 0.25}
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the ``with`` block to the stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - started
            self._seconds[name] = self._seconds.get(name, 0.0) + elapsed

    def take(self, total: str = "") -> dict[str, float]:
        """Return ``time/<stage>`` in seconds since the last call; ``total`` names their sum."""
        taken, self._seconds = self._seconds, {}
        if total:
            taken[total] = sum(taken.values())
        return {f"time/{name}": seconds for name, seconds in taken.items()}

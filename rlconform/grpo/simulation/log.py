"""``SimulatedLog``: opens the files of events of a simulated run; their clocks show simulated time.

All writers are of one process and share a clock that grows with each event, so the order of the
log is the order in which events were written.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from rlconform.events import EventWriter

_MICROSECOND_NS = 1000


class SimulatedLog:
    """Opens writers for one run, with its restarts; without a folder they write nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._past_s = self._now_s = 0.0  # of the parts before a restart, and of this one
        self._last_ns = 0

    @property
    def enabled(self) -> bool:
        """Whether events are written."""
        return self._folder is not None

    def begin_part(self) -> None:
        """Begin the run, or go on after a restart: another loop, with time from 0."""
        self._past_s, self._now_s = self._past_s + self._now_s + 1.0, 0.0

    def writer(self, role: str, rank: int = 0) -> EventWriter:
        """Open a file of events."""
        return EventWriter(self._folder, run="simulated", role=role, rank=rank, timer=self)

    def time_ns(self) -> int:
        """Return the simulated time, a microsecond after the last one at least."""
        with suppress(RuntimeError):  # between two parts of the run no loop runs
            self._now_s = asyncio.get_running_loop().time()
        now = int((self._past_s + self._now_s) * 1e9)
        self._last_ns = max(now, self._last_ns + _MICROSECOND_NS)
        return self._last_ns

    def monotonic_ns(self) -> int:
        """Return the same as ``time_ns``."""
        return self.time_ns()

"""``IdleClock``: the seconds that one side of an asynchronous run was idle, by cause."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable


class IdleClock:
    """Adds up the time between changes of cause; None means busy."""

    def __init__(self, report: Callable[[str, float], None] | None = None) -> None:
        """Make a clock; ``report`` gets each cause that has ended, with its seconds."""
        self._report = report
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cause: str | None = None
        self._since = self._begun = 0.0

    def switch(self, cause: str | None) -> None:
        """Note that from now on this is why the side is idle, or that it is busy."""
        now = asyncio.get_running_loop().time()
        if self._cause is not None:
            self._seconds[self._cause] += now - self._since
        if cause != self._cause:
            if self._report is not None and self._cause is not None and now > self._begun:
                self._report(self._cause, now - self._begun)
            self._begun = now
        self._cause, self._since = cause, now

    def take(self) -> dict[str, float]:
        """Return the seconds by cause since the last call."""
        self.switch(self._cause)
        taken, self._seconds = self._seconds, defaultdict(float)
        return dict(taken)

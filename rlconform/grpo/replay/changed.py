"""``Changed``: lets coroutines wait for a condition on state that they share.

    pump ── await changed.until(lambda: buffer.size < capacity) ─┐
    buffer ── frees a slot ── changed.notify() ──▶ looks again ◀─┘

All run in one event loop, so nothing changes between a look and the code after ``until``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Changed:
    """Wakes all waiting coroutines when something has changed; each then looks for itself."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        #: Number of notifications; the watchdog sees by it that the run goes on.
        self.count = 0

    def notify(self) -> None:
        """Wake all waiting coroutines."""
        self.count += 1
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():  # a cancelled one
                future.set_result(None)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return as soon as the condition holds; at once if it holds already."""
        while not holds():
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

"""``LoopThread``: an event loop in a thread of its own, to which other threads give coroutines.

any thread ── run(coroutine) ──▶ loop's thread     waits for the result
           ── start, call ────▶                    goes on
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

R = TypeVar("R")


class LoopThread:
    """Runs coroutines until ``close``; a daemon thread, which never keeps the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether ``close`` was not called."""
        return self._thread.is_alive()

    def start(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        """Start a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop and wait for its result."""
        return self.start(work).result()

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, without waiting."""
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """End the loop and its thread."""
        self.call(self._loop.stop)
        self._thread.join()
        self._loop.close()

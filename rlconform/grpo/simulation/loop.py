"""``SimulatedLoop``: an event loop whose clock jumps to the next timer.

As soon as nothing else can run, time is that of the next timer, so nobody ever waits. A run without
a next timer is a deadlock, and raises.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(AssertionError):
    """Every coroutine waits for another, and no timer runs."""


class _JumpingSelector(selectors.SelectSelector):
    loop: SimulatedLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise Deadlock("every coroutine waits, and no timer runs")
        self.loop.now += max(timeout, 0.0)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop with simulated time, in seconds from 0."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Return the simulated time."""
        return self.now


def simulate(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a simulated clock."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(coroutine)

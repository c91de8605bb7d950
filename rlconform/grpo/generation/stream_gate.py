"""``StreamGate``: runs streams that a weight update or a stop interrupts.

    row ── run(stream, stop) ──▶ waits until the gate is open ── stream ── ends, or is cancelled
    refit ── close ──▶ cancels all streams, waits until none is left ── weights change ── open ──▶

A row waits for the gate, a closing gate for the streams to be gone; a stop ends either wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine


class StreamGate:
    """Lets streams through while it is open; for one event loop."""

    def __init__(self) -> None:
        self._opened, self._closed = asyncio.Event(), asyncio.Event()
        self._opened.set()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    async def run(
        self, stream: Callable[[], Coroutine[None, None, None]], stop: asyncio.Event
    ) -> None:
        """Run a stream to its end, or until the gate closes or ``stop`` is set; raise its error."""
        while not self._opened.is_set() and not stop.is_set():
            await _first_of(self._opened, stop)
        if stop.is_set():
            return
        self._inside += 1
        self._empty.clear()
        task = asyncio.create_task(stream())
        task.add_done_callback(self._leave)
        try:
            await _first_of(self._closed, stop, task)
        finally:
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    def _leave(self, stream: asyncio.Task[None]) -> None:
        """Count a stream that has ended, even if the call of ``run`` was cancelled before it."""
        if not stream.cancelled():
            stream.exception()  # ``run`` raises it, unless it was cancelled
        self._inside -= 1
        if not self._inside:
            self._empty.set()

    async def close(self) -> None:
        """Cancel all streams, keep new ones out, and return when none is left."""
        self._opened.clear()
        self._closed.set()
        await self._empty.wait()

    async def open(self) -> None:
        """Let streams through again."""
        self._closed.clear()
        self._opened.set()


async def _first_of(first: asyncio.Event, second: asyncio.Event, task: object = None) -> None:
    """Wait until an event is set or the task is done."""
    waits: set[asyncio.Task[object]] = {
        asyncio.create_task(event.wait()) for event in (first, second)
    }
    others = {task} if isinstance(task, asyncio.Task) else set()
    try:
        await asyncio.wait(waits | others, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()

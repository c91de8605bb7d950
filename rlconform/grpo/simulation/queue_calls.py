"""``SimulatedCalls``: calls of a trajectory queue on a simulated clock.

    QueueClient ── call ── some time ──▶ QueueActor, in this process ── some time ──▶ answer

Calls take different times, so they arrive in any order, as those of a Ray actor do; from
``dies_at`` on all of them fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any

from rlconform.grpo.queue.queue_actor import QueueActor
from rlconform.grpo.queue.queue_client import QueueLost


class SimulatedCalls:
    """Runs each call as a task of its own, as an actor does: a caller's end does not end it.

    ``seconds`` is the mean time of a way there or back.
    """

    def __init__(
        self, queue: QueueActor, seconds: float = 0.0, dies_at: float | None = None
    ) -> None:
        self.queue = queue
        self._seconds, self._dies_at = seconds, dies_at
        self._random = Random(0)
        self._running: set[asyncio.Task[Any]] = set()

    def call(self, method: str, *args: Any) -> Awaitable[Any]:
        """See ``QueueCalls``."""
        return asyncio.shield(self._start(method, *args))

    def send(self, method: str, *args: Any) -> None:
        """See ``QueueCalls``."""
        self._start(method, *args)

    def _start(self, method: str, *args: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(self._run(method, *args))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as seen: nobody may read the answer

    async def _run(self, method: str, *args: Any) -> Any:
        await asyncio.sleep(2 * self._seconds * self._random.random())
        answer = getattr(self.queue, method)(*args)
        if self._dies_at is None:
            result = await answer
        else:
            left = max(self._dies_at - asyncio.get_running_loop().time(), 0.0)
            try:
                async with asyncio.timeout(left):
                    result = await answer
            except TimeoutError as error:
                raise QueueLost("the trajectory queue has died") from error
        await asyncio.sleep(2 * self._seconds * self._random.random())
        return result

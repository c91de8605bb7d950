"""``CallThreads``: the threads of an event loop's blocking calls, waited for with a deadline.

    task ── asyncio.to_thread(call) ──▶ a thread ── call ──▶ plane, actors
    end of a failed run ── wait(seconds) ──▶ calls that no task awaits any more

A task that is cancelled leaves its call behind: a thread can't be cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any


class CallThreads(ThreadPoolExecutor):
    """Use it as the default executor of an event loop."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="call")
        self._calls: set[Future[Any]] = set()

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call in a thread, and remember it until it has ended."""
        future = super().submit(call, *args, **kwargs)
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def wait(self, timeout_s: float) -> bool:
        """Wait until all calls have ended; False if the timeout passed first."""
        return not wait(list(self._calls), timeout_s).not_done

"""``FairLock``: a lock that several threads take again and again, in the order in which they asked.

    thread A ── with lock ──▶ makes a token ── leaves ──▶ the lock passes to the first waiter
    thread B ── with lock ──▶ waits for A
    refit    ── with lock ──▶ waits for A and B, although A asks again at once

``threading.Lock`` has no order: a thread that releases it and asks again at once usually gets it
again, so a refit could wait until a long generation has ended.
"""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """A lock for ``with``; it is not reentrant."""

    def __init__(self) -> None:
        self._state = threading.Lock()  # guards the fields below, never held while waiting
        self._held = False
        self._waiters: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        turn = threading.Lock()
        with self._state:
            if not self._held:
                self._held = True
                return
            turn.acquire()
            self._waiters.append(turn)
        turn.acquire()  # the thread before this one releases it, and ``_held`` stays true

    def __exit__(self, *_: object) -> None:
        with self._state:
            if self._waiters:
                self._waiters.popleft().release()
            else:
                self._held = False

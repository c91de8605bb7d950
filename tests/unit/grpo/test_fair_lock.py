"""A fair lock serves its waiters in order, and before a thread that asks again."""

from __future__ import annotations

import threading
from collections import deque

import pytest

from rlconform.grpo.generation.fair_lock import FairLock


class Waiters(deque[threading.Lock]):
    """The waiters of a lock, which announce that they are so many."""

    def __init__(self) -> None:
        super().__init__()
        self._joined = threading.Condition()

    def append(self, turn: threading.Lock) -> None:
        with self._joined:
            super().append(turn)
            self._joined.notify_all()

    def reach(self, number: int) -> bool:
        """Wait until so many wait; return False if they do not within 30 s."""
        with self._joined:
            return self._joined.wait_for(lambda: len(self) == number, timeout=30)


@pytest.fixture
def waiters() -> Waiters:
    return Waiters()


@pytest.fixture
def lock(waiters: Waiters) -> FairLock:
    lock = FairLock()
    lock._waiters = waiters
    return lock


def test_waiters_are_served_in_order_before_a_thread_that_asks_again(
    lock: FairLock, waiters: Waiters
) -> None:
    served: list[str] = []

    def ask(name: str) -> None:
        with lock:
            served.append(name)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "bcd"]
    with lock:
        for waiting, thread in enumerate(threads, start=1):
            thread.start()
            assert waiters.reach(waiting)
    ask("a")  # at once after leaving
    assert served == ["b", "c", "d", "a"]
    for thread in threads:
        thread.join(30)


def test_only_one_thread_is_inside(lock: FairLock, waiters: Waiters) -> None:
    turns, inside, most = [2000], [0], [0]

    def work() -> None:
        while True:
            with lock:
                if not turns[0] or most[0] > 1:
                    return
                turns[0] -= 1
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                waiters.reach(3)  # a thread that is not kept out enters meanwhile
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1]
    with lock:  # nobody holds it any more
        assert (turns, inside) == ([0], [0])


def test_an_error_leaves_the_lock_free(lock: FairLock) -> None:
    with pytest.raises(KeyError), lock:
        raise KeyError
    with lock:
        pass

"""A fair lock serves its waiters in order, and before a thread that asks again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from rlconform.grpo.generation.fair_lock import FairLock


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0)


def test_waiters_are_served_in_order_before_a_thread_that_asks_again() -> None:
    lock, served = FairLock(), list[str]()

    def ask(name: str) -> None:
        with lock:
            served.append(name)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "bcd"]
    with lock:
        for waiting, thread in enumerate(threads, start=1):
            thread.start()
            wait_for(lambda: len(lock._waiters) == waiting)  # noqa: B023
    ask("a")  # at once after leaving
    assert served == ["b", "c", "d", "a"]
    for thread in threads:
        thread.join(30)


def test_only_one_thread_is_inside() -> None:
    lock, inside, most = FairLock(), [0], [0]

    def work() -> None:
        for _ in range(500):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0)  # lets another thread run
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1]
    with lock:  # nobody holds it any more
        assert inside == [0]


def test_an_error_leaves_the_lock_free() -> None:
    lock = FairLock()
    with pytest.raises(KeyError), lock:
        raise KeyError
    with lock:
        pass

"""Blocking claims of the memory plane: puts wake them, and waiting uses no CPU."""

from __future__ import annotations

import gc
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import ClientClosed, KVBatchMeta, PlaneUnavailable, UnknownTask

SOON = 20.0  # seconds; much longer than a wake-up, much shorter than a claim's timeout


class Waiters:
    """Runs claims in threads; ``start`` returns once the claim is waiting."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(8)

    def start(self, claim: Callable[[], KVBatchMeta]) -> Future[KVBatchMeta]:
        thread: Future[int] = Future()

        def run() -> KVBatchMeta:
            thread.set_result(threading.get_ident())
            return claim()

        claimed = self._pool.submit(run)
        ident = thread.result(SOON)
        deadline = time.monotonic() + SOON
        while not claimed.done() and sys._current_frames()[ident].f_code.co_name != "wait":
            assert time.monotonic() < deadline, "the claim neither returned nor fell asleep"
            time.sleep(0)
        return claimed

    def stop(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    client = MemoryClient()
    client.register_partition("p", ["x", "y"], 8, ["t", "u"])
    yield client
    client.close()


@pytest.fixture
def waiters(client: MemoryClient) -> Iterator[Waiters]:
    waiters = Waiters()
    yield waiters
    client.close()  # wakes all waiting claims
    waiters.stop()


def put(client: MemoryClient, ids: list[str], field: str = "x") -> None:
    client.put_samples(ids, "p", TensorDict({field: torch.zeros(len(ids))}, [len(ids)]))


def claim(client: MemoryClient, rows: int = 1, fields: tuple[str, ...] = ("x",)) -> KVBatchMeta:
    return client.claim_meta("p", "t", list(fields), rows, timeout_s=60.0)


def test_a_claim_sleeps_until_its_last_row_arrives(client: MemoryClient, waiters: Waiters) -> None:
    claimed = waiters.start(lambda: claim(client, 2, ("x", "y")))
    put(client, ["a", "b"])
    put(client, ["a"], "y")
    assert not claimed.done()
    put(client, ["b"], "y")
    assert claimed.result(SOON).sample_ids == ["a", "b"]


def test_waiters_share_rows_without_overlap(client: MemoryClient, waiters: Waiters) -> None:
    claims = [waiters.start(lambda: claim(client)) for _ in range(6)]
    put(client, list("abcdef"))
    assert sorted(each.result(SOON).sample_ids[0] for each in claims) == list("abcdef")


def test_a_waiting_claim_takes_nothing_from_a_smaller_one(
    client: MemoryClient, waiters: Waiters
) -> None:
    large = waiters.start(lambda: claim(client, 3))
    put(client, ["a", "b"])
    assert client.claim_meta("p", "t", ["x"], 2, blocking=False).sample_ids == ["a", "b"]
    put(client, ["c", "d", "e"])
    assert large.result(SOON).sample_ids == ["c", "d", "e"]


def test_waiting_does_not_poll(client: MemoryClient) -> None:
    calls = 0

    def count(*_args: object) -> None:
        nonlocal calls
        calls += 1

    gc.collect()
    gc.disable()  # do not count other objects' collection and its callbacks
    sys.setprofile(count)
    try:
        with pytest.raises(TimeoutError):
            client.claim_meta("p", "t", ["x"], 1, timeout_s=0.5)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert calls < 500  # polling every 5 ms would make thousands


def test_no_patience_is_no_error_when_rows_are_ready(client: MemoryClient) -> None:
    put(client, ["a"])
    assert client.claim_meta("p", "t", ["x"], 1, timeout_s=0).sample_ids == ["a"]
    with pytest.raises(TimeoutError, match=r"^'p' has no 1 rows with \['x'\] for task 't'$"):
        client.claim_meta("p", "t", ["x"], 1, timeout_s=0)


def test_endless_patience_is_allowed(client: MemoryClient, waiters: Waiters) -> None:
    claimed = waiters.start(lambda: client.claim_meta("p", "t", ["x"], 1, timeout_s=math.inf))
    put(client, ["a"])
    assert claimed.result(SOON).sample_ids == ["a"]


def test_the_owners_close_ends_a_wait(client: MemoryClient, waiters: Waiters) -> None:
    worker = MemoryClient(bootstrap=False)
    claimed = waiters.start(lambda: claim(worker))
    client.close()
    with pytest.raises(PlaneUnavailable):
        claimed.result(SOON)


def test_a_clients_own_close_ends_its_waits_alone(client: MemoryClient, waiters: Waiters) -> None:
    worker = MemoryClient(bootstrap=False)
    its_own = waiters.start(lambda: claim(worker))
    another = waiters.start(lambda: claim(client))
    worker.close()
    with pytest.raises(ClientClosed):
        its_own.result(SOON)
    put(client, ["a"])
    assert another.result(SOON).sample_ids == ["a"]


def test_a_wait_outlives_a_clear_and_a_new_registration(
    client: MemoryClient, waiters: Waiters
) -> None:
    put(client, ["a"])
    claimed = waiters.start(lambda: claim(client, 2))
    client.clear_samples(None, "p")
    client.register_partition("p", ["x"], 2, ["t"])
    put(client, ["a", "b"])
    assert claimed.result(SOON).sample_ids == ["a", "b"]


def test_a_wait_ends_when_its_task_is_registered_no_more(
    client: MemoryClient, waiters: Waiters
) -> None:
    claimed = waiters.start(lambda: claim(client))
    client.register_partition("p", ["x"], 2, ["other"])
    with pytest.raises(UnknownTask):
        claimed.result(SOON)

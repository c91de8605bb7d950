"""``TimedClient`` times calls and checks the rows that the plane returns."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.bench import timed_client
from rlconform.bench.client_pool import (
    CallRefused,
    ClientHandle,
    ClientPool,
    PlaneLost,
    submit_to_threads,
    thread_pool,
)
from rlconform.bench.measurements import CHUNK, CarryBatch, DrainRows, SlideRows, WakeClaim
from rlconform.bench.plan import load_shape
from rlconform.bench.timed_client import TimedClient
from rlconform.contract import CapacityExceeded

TINY = load_shape("tiny")
CFG = {"enabled": True, "impl": "memory"}


def pool(client: MemoryClient, claimers: int = 3) -> ClientPool:
    return thread_pool(client, claimers, call_s=20.0)


def carry(client: MemoryClient) -> dict[str, float]:
    clients, measurement = pool(client), CarryBatch("tiny", 1, TINY)
    measurement.prepare(clients, 0)
    return measurement.turn(clients, 0)


def drain(client: MemoryClient, consumers: int, ready: int) -> float:
    return DrainRows("rate", 1, consumers, ready, 64).turn(pool(client, consumers), 0)["rate"]


def test_a_turn_times_every_operation_once() -> None:
    figures = carry(MemoryClient(CFG))
    assert list(figures) == ["put", "get", "get_in_order", "claim", "clear"]
    assert all(0 < seconds < 20 for seconds in figures.values())


def test_only_the_call_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    class Slow(MemoryClient):
        def get_samples(self, *args: Any, **kwargs: Any) -> TensorDict:
            clock.now += 0.5
            return super().get_samples(*args, **kwargs)

    clock = Clock()
    monkeypatch.setattr(timed_client, "time", clock)
    assert carry(Slow(CFG)) == {
        "put": 0.0,
        "get": 0.5,
        "get_in_order": 0.5,
        "claim": 0.0,
        "clear": 0.0,
    }


class Unordered(MemoryClient):
    """Reads the rows in the order of their names."""

    def get_samples(self, sample_ids: list[str], *args: Any, **kwargs: Any) -> TensorDict:
        return super().get_samples(sorted(sample_ids), *args, **kwargs)


class Forgetful(MemoryClient):
    """Claims without moving the cursor."""

    def claim_meta(self, partition_id: str, task_name: str, *args: Any, **kwargs: Any) -> Any:
        self.register_partition(partition_id, [], 1, [fresh := f"{task_name}{time.monotonic_ns()}"])
        return super().claim_meta(partition_id, fresh, *args, **kwargs)


class Full(MemoryClient):
    """Refuses every put for lack of capacity."""

    def put_samples(self, *_: Any, **__: Any) -> Any:
        raise CapacityExceeded("8 rows are too many")


def test_rows_in_another_order_are_wrong_data() -> None:
    with pytest.raises(CallRefused, match=r"consumer1\.get: WrongData: \d of 8 rows"):
        carry(Unordered(CFG))


def test_a_refusal_names_the_client_and_the_error() -> None:
    with pytest.raises(CallRefused, match=r"producer\.put: CapacityExceeded: 8 rows are too many"):
        carry(Full(CFG))


def test_a_refused_turn_leaves_no_rows_behind() -> None:
    client = Unordered(CFG)
    with pytest.raises(CallRefused):
        carry(client)
    left = client.claim_meta("tiny", "train", list(TINY.fields), 100, blocking=False)
    assert left.sample_ids == []


def test_all_consumers_drain_together() -> None:
    assert drain(MemoryClient(CFG), consumers=4, ready=1_000) > 0


def test_rows_claimed_twice_give_no_rate() -> None:
    class TwiceOver(MemoryClient):
        def claim_meta(self, *args: Any, **kwargs: Any) -> Any:
            meta = super().claim_meta(*args, **kwargs)
            meta.sample_ids.extend(meta.sample_ids[:1])
            return meta

    with pytest.raises(CallRefused, match="100 rows were ready, 100 were claimed, 2 of them again"):
        drain(TwiceOver(CFG), consumers=2, ready=100)


def test_a_partition_stays_as_full() -> None:
    client = MemoryClient(CFG)
    clients, measurement = pool(client), SlideRows("rows", 3, 2 * CHUNK - 1, 8)
    assert measurement.steps == 2
    for step in range(measurement.steps):
        measurement.prepare(clients, step)
    for number in range(3):
        assert list(measurement.turn(clients, number)) == ["claim", "get", "clear", "put"]
    ready = client.claim_meta(measurement.partition, "train", ["number"], 3 * CHUNK, blocking=False)
    assert len(set(ready.sample_ids)) == 2 * CHUNK - 1
    measurement.finish(clients, 0)


def test_a_claim_that_moves_no_cursor_is_noticed() -> None:
    with pytest.raises(CallRefused, match="10 rows were ready, 10 were claimed, 10 of them again"):
        drain(Forgetful(CFG), consumers=1, ready=10)


def test_a_wake_is_timed_from_the_put() -> None:
    figures = WakeClaim("wake", 1).turn(pool(MemoryClient(CFG)), 0)
    assert figures["from_return"] < figures["from_start"] < 20


def test_a_hung_call_loses_the_client() -> None:
    released = threading.Event()

    class Hung(MemoryClient):
        def clear_samples(self, *_: Any, **__: Any) -> None:
            released.wait()

    handle = ClientHandle("consumer1", submit_to_threads(Hung(CFG)), 0.2)
    try:
        with pytest.raises(PlaneLost, match=r"consumer1\.clear did not return in 0\.2 s"):
            handle.call("clear", "p", ["a"])
    finally:
        released.set()


def test_errors_are_sent_as_text() -> None:
    ok, error = TimedClient(lambda: Full(CFG)).run("put_rows", "p", 0, 3)
    assert not ok
    assert error == "CapacityExceeded: 8 rows are too many"

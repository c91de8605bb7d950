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
    ClientLost,
    submit_to_threads,
    thread_pool,
)
from rlconform.bench.plan import load_shape
from rlconform.bench.plane_process import PlaneProcess
from rlconform.bench.timed_client import TimedClient
from rlconform.contract import CapacityExceeded

TINY = load_shape("tiny")
CFG = {"enabled": True, "impl": "memory"}


def plane(client: MemoryClient, claimers: int = 3) -> PlaneProcess:
    return PlaneProcess(thread_pool(client, claimers, call_s=20.0))


def carry(client: MemoryClient) -> dict[str, list[float]]:
    of_tiny = plane(client)
    of_tiny.load(TINY)
    return of_tiny.carry("tiny", "r0")


def test_a_turn_times_every_operation_once() -> None:
    figures = carry(MemoryClient(CFG))
    assert list(figures) == ["put", "get", "get_in_order", "claim", "clear"]
    assert all(len(seconds) == 1 and 0 < seconds[0] < 20 for seconds in figures.values())


def test_only_the_call_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

    class Slow(MemoryClient):
        def get_samples(self, *args: Any, **kwargs: Any) -> TensorDict:
            clock.now += 0.5
            return super().get_samples(*args, **kwargs)

    clock = Clock()
    monkeypatch.setattr(timed_client, "time", clock)
    took = {name: seconds for name, (seconds,) in carry(Slow(CFG)).items()}
    assert took == {"put": 0.0, "get": 0.5, "get_in_order": 0.5, "claim": 0.0, "clear": 0.0}


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
    figures = plane(MemoryClient(CFG), claimers=4).drain("rate", 4, 1_000, 64)
    (rate,) = figures["rate"]
    assert rate > 0


def test_rows_claimed_twice_give_no_rate() -> None:
    class TwiceOver(MemoryClient):
        def claim_meta(self, *args: Any, **kwargs: Any) -> Any:
            meta = super().claim_meta(*args, **kwargs)
            meta.sample_ids.extend(meta.sample_ids[:1])
            return meta

    with pytest.raises(CallRefused, match="100 rows were ready, 100 were claimed, 2 of them again"):
        plane(TwiceOver(CFG)).drain("rate", 2, 100, 64)


def test_a_partition_stays_as_full() -> None:
    client = MemoryClient(CFG)
    of_many = plane(client)
    of_many.fill("growth", 0, 100, 200)
    of_many.fill("growth", 100, 100, 200)
    for number in range(3):
        figures = of_many.slide("growth", 200 + number * 8, 8)
        assert {name: len(values) for name, values in figures.items()} == dict.fromkeys(
            ("claim", "get", "clear", "put"), 1
        )
    ready = client.claim_meta("growth", "train", ["number"], 1_000, blocking=False)
    assert len(ready.sample_ids) == 200
    of_many.empty("growth")


def test_a_claim_that_moves_no_cursor_is_noticed() -> None:
    with pytest.raises(CallRefused, match="10 rows were ready, 10 were claimed, 10 of them again"):
        plane(Forgetful(CFG)).drain("rate", 1, 10, 64)


def test_a_wake_is_timed_from_the_put() -> None:
    figures = plane(MemoryClient(CFG)).wake("wake", 0)
    (from_start,), (from_return,) = figures["from_start"], figures["from_return"]
    assert from_return < from_start < 20


def test_a_hung_call_loses_the_client() -> None:
    released = threading.Event()

    class Hung(MemoryClient):
        def clear_samples(self, *_: Any, **__: Any) -> None:
            released.wait()

    handle = ClientHandle("consumer1", submit_to_threads(Hung(CFG)), 0.2)
    try:
        with pytest.raises(ClientLost, match=r"consumer1\.clear_rows did not return in 0\.2 s"):
            handle.call("clear_rows", "p", ["a"])
    finally:
        released.set()


def test_errors_are_sent_as_text() -> None:
    ok, error = TimedClient(Full(CFG)).run("put_rows", "p", 0, 3)
    assert not ok
    assert error == "CapacityExceeded: 8 rows are too many"

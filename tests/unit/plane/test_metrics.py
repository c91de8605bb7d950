"""``MetricsClient`` records the events of a memory plane."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import CLIENT_METHODS, DataPlaneClient, UnknownSample
from rlconform.plane import MetricEvent, MetricsClient


@pytest.fixture
def log() -> list[MetricEvent]:
    return []


@pytest.fixture
def client(log: list[MetricEvent]) -> Iterator[MetricsClient]:
    client = MetricsClient(MemoryClient(), log.append)
    client.register_partition("p", ["x"], 4, ["t"])
    log.clear()
    yield client
    client.close()


def columns(n_rows: int = 2, width: int = 3) -> TensorDict:
    return TensorDict({"x": torch.zeros(n_rows, width), "mask": torch.zeros(n_rows).bool()}, n_rows)


def outcome(operation: MetricEvent) -> tuple[str, str | None, int, int, str]:
    return (
        operation.op,
        operation.partition,
        operation.n_keys,
        operation.n_bytes,
        operation.status,
    )


@pytest.mark.parametrize("method", CLIENT_METHODS)
def test_the_wrapper_has_the_protocols_signatures(method: str) -> None:
    signatures = (
        inspect.signature(getattr(owner, method)).parameters
        for owner in (MetricsClient, DataPlaneClient)
    )
    ours, theirs = ([(p.name, p.default) for p in of_one.values()] for of_one in signatures)
    assert ours == theirs


def test_each_operation_is_reported_once(client: MetricsClient, log: list[MetricEvent]) -> None:
    client.put_samples(["a", "b"], "p", columns(), tags=[{}, {}])
    client.get_samples(["b"], "p", ["x"])
    claimed = client.claim_meta("p", "t", ["x"], 8, blocking=False)
    client.get_data(claimed, ["mask"])
    assert client.check_consumption_status("p", ["t"])
    client.clear_samples(["a", "unknown"], "p")
    client.register_partition("q", [], 0, [])
    assert [outcome(operation) for operation in log] == [
        ("put_samples", "p", 2, 2 * (3 * 4 + 1), "ok"),
        ("get_samples", "p", 1, 12, "ok"),
        ("claim_meta", "p", 2, 0, "ok"),
        ("get_data", "p", 2, 2, "ok"),
        ("check_consumption_status", "p", 0, 0, "ok"),
        ("clear_samples", "p", 2, 13, "ok"),
        ("register_partition", "q", 0, 0, "ok"),
    ]
    assert all(operation.wall_ms > 0 for operation in log)


def test_a_close_is_reported(log: list[MetricEvent]) -> None:
    MetricsClient(MemoryClient(), log.append).close()
    assert [outcome(operation) for operation in log] == [("close", None, 0, 0, "ok")]


def test_a_call_that_raises_is_reported_and_raises(
    client: MetricsClient, log: list[MetricEvent]
) -> None:
    client.put_samples(["a"], "p", columns(1))
    with pytest.raises(UnknownSample):
        client.get_samples(["a", "b"], "p", ["x"])
    with pytest.raises(ValueError, match="batch size"):
        client.put_samples(["a", "b"], "p", columns(1))
    with pytest.raises(TimeoutError):
        client.claim_meta("p", "t", ["x"], 5, timeout_s=0.05)
    assert [(operation.op, operation.n_keys, operation.status) for operation in log[1:]] == [
        ("get_samples", 2, "error"),
        ("put_samples", 2, "error"),
        ("claim_meta", 5, "timeout"),
    ]
    assert log[-1].wall_ms >= 50


@pytest.mark.parametrize("wrong", [None, 3, "ab"])
def test_malformed_calls_are_the_clients_to_refuse(client: MetricsClient, wrong: object) -> None:
    for call in (
        lambda: client.put_samples(wrong, "p", columns()),
        lambda: client.put_samples(["a", "b"], "p", wrong),
        lambda: client.get_samples(wrong, "p", ["x"]),
        lambda: client.claim_meta("p", "t", ["x"], None),
        lambda: client.get_data(wrong, ["x"]),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()


def freed(client: MetricsClient, log: list[MetricEvent], ids: list[str] | None) -> tuple[int, int]:
    """Rows and bytes that a clear reports."""
    client.clear_samples(ids, "p")
    return log[-1].n_keys, log[-1].n_bytes


def test_a_clear_frees_the_newest_bytes_of_this_clients_rows(
    client: MetricsClient, log: list[MetricEvent]
) -> None:
    client.put_samples(["a", "b"], "p", TensorDict({"x": torch.zeros(2, 4)}, 2))
    client.put_samples(["b", "c"], "p", TensorDict({"x": torch.zeros(2, 2)}, 2))
    client.put_samples(["a"], "p", TensorDict({"y": torch.zeros(1).half()}, 1))
    assert freed(client, log, ["a"]) == (1, 16 + 2)
    assert freed(client, log, ["a", "never"]) == (2, 0)
    client.put_samples(["a"], "p", TensorDict({"x": torch.zeros(1, 2)}, 1))
    assert freed(client, log, None) == (3, 24)
    assert freed(client, log, None) == (0, 0)


def test_partitions_are_counted_apart(client: MetricsClient, log: list[MetricEvent]) -> None:
    client.put_samples(["a"], "p", columns(1))
    client.put_samples(["a"], "q", columns(1, width=1))
    client.clear_samples(None, "q")
    assert outcome(log[-1]) == ("clear_samples", "q", 1, 5, "ok")
    assert freed(client, log, None) == (1, 13)


def test_a_failed_put_adds_nothing(client: MetricsClient, log: list[MetricEvent]) -> None:
    client.put_samples(["a", "b"], "p", columns())
    with pytest.raises(ValueError, match="float64"):
        client.put_samples(["a"], "p", TensorDict({"x": torch.zeros(1, 9).double()}, 1))
    assert freed(client, log, None) == (2, 26)


def test_jagged_rows_count_by_their_own_length(
    client: MetricsClient, log: list[MetricEvent]
) -> None:
    jagged = torch.nested.nested_tensor_from_jagged(torch.zeros(3, 2), torch.tensor([0, 3, 3]))
    client.put_samples(["a", "b"], "p", TensorDict({"x": jagged}, 2))
    client.clear_samples(["b"], "p")
    client.clear_samples(["a"], "p")
    client.put_samples([], "p", TensorDict({"x": torch.zeros(0, 2)}, 0))
    assert [operation.n_bytes for operation in log] == [24, 0, 24, 0]


def test_a_view_counts_by_its_own_size(client: MetricsClient, log: list[MetricEvent]) -> None:
    client.put_samples(["a", "b"], "p", TensorDict({"x": torch.zeros(1).expand(2, 5)}, 2))
    client.put_samples(["a", "b"], "p", TensorDict({"y": torch.zeros(2, 1000)[:, :3]}, 2))
    assert [operation.n_bytes for operation in log] == [40, 24]


def test_objects_count_as_rows_without_bytes(client: MetricsClient, log: list[MetricEvent]) -> None:
    client.put_samples(["a", "b"], "p", TensorDict({"log": ["long " * 99, "text"]}, 2))
    assert freed(client, log, None) == (2, 0)


def test_a_broken_callback_is_loud_and_the_operation_stands() -> None:
    def broken(_operation: MetricEvent) -> None:
        raise RuntimeError("no disk left for metrics")

    plane = MemoryClient()
    client = MetricsClient(plane, broken)
    with pytest.raises(RuntimeError, match="no disk"):
        client.put_samples(["a"], "p", columns(1))
    assert plane.get_samples(["a"], "p", ["x"])["x"].shape == (1, 3)
    plane.close()


def test_a_callback_may_use_the_client() -> None:
    seen: list[bool] = []

    def use(event: MetricEvent) -> None:
        if event.op == "put_samples":
            seen.append(client.check_consumption_status("p", ["t"]))

    client = MetricsClient(MemoryClient(), use)
    client.register_partition("p", ["x"], 4, ["t"])
    client.put_samples(["a"], "p", columns(1))
    client.close()
    assert seen == [False]


def test_threads_add_up(client: MetricsClient, log: list[MetricEvent]) -> None:
    def work(thread: int) -> None:
        for step in range(50):
            ids = [f"{thread}-{step}-{row}" for row in range(2)]
            client.put_samples(ids, "p", columns())
            if step % 2:
                client.clear_samples(ids, "p")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(log) == 4 * 75
    assert freed(client, log, None) == (200, 200 * 13)

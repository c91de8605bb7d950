"""The cost of a memory plane operation depends on its batch, not on the partition.

Cost is the number of lines and calls that Python executes, independent of the machine's load.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient

BATCH = 64
SMALL, LARGE = 256, 8192


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    client = MemoryClient()
    yield client
    client.close()


def steps(work: Callable[[], object]) -> int:
    """Number of lines and calls, including those of C functions, that ``work`` executes."""
    count = 0

    def on_line(_frame: FrameType, _event: str, _arg: Any) -> Any:
        nonlocal count
        count += 1
        return on_line

    def on_call(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "c_call"

    gc.disable()  # do not count other objects' collection and its callbacks
    before = sys.gettrace()
    sys.settrace(on_line)
    sys.setprofile(on_call)
    try:
        work()
    finally:
        sys.setprofile(None)
        sys.settrace(before)
        gc.enable()
    return count


def ids(start: int, n_rows: int) -> list[str]:
    return [f"row{index}" for index in range(start, start + n_rows)]


def columns(n_rows: int, field: str = "x") -> TensorDict:
    return TensorDict({field: torch.arange(n_rows)}, [n_rows])


def fill(client: MemoryClient, n_rows: int, group_size: int = 1) -> str:
    """A partition of ``n_rows`` ready rows whose queue exists."""
    partition = f"p{n_rows}"
    client.register_partition(partition, ["x"], n_rows, ["task", "new"], grpo_group_size=group_size)
    client.put_samples(ids(0, n_rows), partition, columns(n_rows))
    client.claim_meta(partition, "task", ["x"], BATCH, blocking=False)
    return partition


OPERATIONS: dict[str, Callable[[MemoryClient, str, int], object]] = {
    "claim": lambda c, p, _: c.claim_meta(p, "task", ["x"], BATCH, blocking=False),
    "first claim of a task": lambda c, p, _: c.claim_meta(p, "new", ["x"], BATCH),
    "blocking claim": lambda c, p, _: c.claim_meta(p, "task", ["x"], BATCH),
    "put new rows": lambda c, p, n: c.put_samples(ids(n, BATCH), p, columns(BATCH)),
    "overwrite": lambda c, p, _: c.put_samples(ids(80, BATCH), p, columns(BATCH)),
    "put of a new field": lambda c, p, _: c.put_samples(ids(80, BATCH), p, columns(BATCH, "y")),
    "get": lambda c, p, _: c.get_samples(ids(80, BATCH), p, ["x"]),
    "clear ready rows": lambda c, p, _: c.clear_samples(ids(80, BATCH), p),
    "clear claimed rows": lambda c, p, _: c.clear_samples(ids(0, BATCH), p),
    "status": lambda c, p, _: c.check_consumption_status(p, ["task"]),
}


@pytest.mark.parametrize("group_size", [1, 4])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_cost_does_not_grow_with_the_partition(
    client: MemoryClient, operation: Callable[[MemoryClient, str, int], object], group_size: int
) -> None:
    small, large = (fill(client, n_rows, group_size) for n_rows in (SMALL, LARGE))
    in_small = steps(lambda: operation(client, small, SMALL))
    in_large = steps(lambda: operation(client, large, LARGE))
    assert in_large <= in_small * 1.05 + 5


@pytest.mark.parametrize("spent", ["claimed", "cleared", "claimed and cleared"])
def test_a_claim_does_not_pay_for_rows_that_are_spent(client: MemoryClient, spent: str) -> None:
    partition = fill(client, LARGE)
    fresh = steps(lambda: client.claim_meta(partition, "task", ["x"], BATCH))
    if spent.startswith("claimed"):
        client.claim_meta(partition, "task", ["x"], LARGE, blocking=False)
    if spent.endswith("cleared"):
        client.clear_samples(ids(0, LARGE), partition)
    client.put_samples(ids(LARGE, BATCH), partition, columns(BATCH))
    after = steps(lambda: client.claim_meta(partition, "task", ["x"], BATCH))
    assert after <= fresh * 1.2  # a queue may keep a bounded number of dead entries


def test_rows_cleared_before_they_are_claimed_are_paid_for_once(client: MemoryClient) -> None:
    """Stale entries of a queue add a bounded cost to their clear, and none to later claims."""

    def churn(n_rows: int) -> int:
        partition = fill(client, BATCH)
        client.clear_samples(None, partition)
        client.put_samples(["last"], partition, columns(1))
        client.claim_meta(partition, "task", ["x"], 1)

        def cycles() -> None:
            for start in range(0, n_rows, BATCH):
                client.put_samples(ids(start, BATCH), partition, columns(BATCH))
                client.clear_samples(ids(start, BATCH), partition)

        return steps(cycles)

    assert churn(2048) < 4.4 * churn(512)

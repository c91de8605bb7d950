"""The cost of an index operation depends on its batch, not on the partition.

Cost is the number of lines and calls that Python executes, independent of the machine's load.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from rlconform.backends.index import Extent, Index, PartitionIndex

BATCH = 64
SMALL, LARGE = 512, 16384
X, Y = {"x": Extent("int64", 8)}, {"y": Extent("int64", 8)}


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


def ids(start: int, n_rows: int = BATCH) -> list[str]:
    return [f"row{index}" for index in range(start, start + n_rows)]


def filled(n_rows: int, group_size: int = 1) -> Index:
    """Rows of many puts, as rollout workers write them; the task ``t`` claimed the first batch."""
    index = Index()
    index.register("p", ["t", "u"], group_size)
    for start in range(0, n_rows, BATCH):
        index.commit("p", ids(start), X, None, None, "many")
    index.commit("p", ids(n_rows, 4), X, None, None, "few")
    index.partition("p").claim("t", frozenset("x"), BATCH)
    return index


def claim(index: Index, task: str = "t", fields: str = "x", rows: int = BATCH) -> int:
    partition = index.partition("p")
    partition.is_ready(task, frozenset(fields), rows)  # as a blocking claim does
    return len(partition.claim(task, frozenset(fields), rows))


OPERATIONS: dict[str, Callable[[Index, int], object]] = {
    "claim": lambda index, _: claim(index),
    "first claim of a task": lambda index, _: claim(index, "u"),
    "put of new rows": lambda index, n: index.commit("p", ids(2 * n), X, None, None, "many"),
    "overwrite": lambda index, _: index.commit("p", ids(80), X, None, [{}] * BATCH, "many"),
    "new field": lambda index, _: index.commit("p", ids(80), Y, None, None, "few"),
    "locate": lambda index, _: index.locate("p", ids(80), ["x"]),
    "clear of ready rows": lambda index, _: index.clear("p", ids(80), "few"),
    "clear of claimed rows": lambda index, _: index.clear("p", ids(0), "few"),
    "clear of unseen rows": lambda index, n: index.clear("p", ids(n - BATCH), "few"),
    "clear of what one wrote": lambda index, _: index.clear("p", None, "few"),
    "clear of another writer's rows": lambda index, _: index.clear("p", None, "other"),
    "status": lambda index, _: index.all_claimed("p", ["t", "u"]),
    "registration": lambda index, _: index.register("p", ["v"], 1),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_cost_does_not_grow_with_the_partition(operation: Callable[[Index, int], object]) -> None:
    small, large = filled(SMALL), filled(LARGE)
    in_small = steps(lambda: operation(small, SMALL))
    in_large = steps(lambda: operation(large, LARGE))
    # bisection finds the oldest row that was not scanned
    assert in_large <= in_small * 1.05 + 50


def test_the_first_claim_of_whole_groups_looks_at_no_more_than_it_needs() -> None:
    small, large = (filled(n_rows, group_size=4) for n_rows in (SMALL, LARGE))
    in_small, in_large = (steps(partial(claim, index, "u")) for index in (small, large))
    assert in_large <= in_small * 1.05 + 50


def test_a_field_that_arrives_after_the_claim_looked_costs_its_batch() -> None:
    """A claim scans rows that are not ready; a put of their last field queues them."""

    def cost(n_rows: int) -> int:
        index = filled(n_rows)
        assert claim(index, "u", "xy") == 0  # scanned every row
        put = steps(lambda: index.commit("p", ids(n_rows - BATCH), Y, None, None, "many"))
        return put + steps(lambda: claim(index, "u", "xy"))

    assert cost(LARGE) <= cost(SMALL) * 1.05 + 50


def test_rows_that_are_not_ready_are_looked_at_once() -> None:
    index = filled(LARGE)
    first = steps(lambda: claim(index, "u", "xy"))
    assert first > LARGE
    assert steps(lambda: claim(index, "u", "xy")) < 2 * BATCH


@pytest.mark.parametrize("group_size", [1, 4])
def test_cleared_rows_cost_no_later_claim(group_size: int) -> None:
    """Neither a claim from a queue that scanned them, nor the first claim from a new queue."""
    index = filled(LARGE, group_size)
    fresh = steps(lambda: claim(index))
    fresh_first = steps(lambda: claim(index, "u"))
    index.clear("p", None, "many")
    index.clear("p", None, "few")
    index.register("p", ["t", "u"], group_size)
    index.commit("p", ids(0, 4), X, None, None, "keeps the partition from being reset")
    index.commit("p", ids(LARGE * 2, LARGE), X, None, None, "many")
    claim(index, rows=LARGE // 2)
    index.clear("p", ids(LARGE * 2, LARGE), "many")
    index.commit("p", ids(0, 2 * BATCH), X, None, None, "many")
    bound = 256 * 8  # cleared rows that the log keeps, by the lines that one costs
    assert steps(lambda: claim(index)) <= fresh * 1.2 + bound
    assert steps(lambda: claim(index, "u")) <= fresh_first * 1.2 + bound


def test_churn_costs_each_row_the_same() -> None:
    """Cleared rows must not add a cost to every later operation."""

    def churn(n_rows: int) -> int:
        index = filled(SMALL)

        def cycles() -> None:
            for start in range(10 * LARGE, 10 * LARGE + n_rows, BATCH):
                index.commit("p", ids(start), X, None, None, "many")
                claim(index, "u")
                index.clear("p", ids(start), "few")
                claim(index, "u", rows=1)

        return steps(cycles)

    assert churn(4096) < 4.4 * churn(1024)


def test_the_log_of_rows_is_bounded_by_the_rows() -> None:
    partition = PartitionIndex()
    partition.register(["t"], 1)
    partition.put(["stays"], None, [{}], "me")
    longest = 0
    for start in range(0, 100 * BATCH, BATCH):
        partition.put(ids(start), None, [{}] * BATCH, "me")
        partition.clear(ids(start))
        longest = max(longest, len(partition._queues._log))
    assert partition.size == 1
    assert 2 * BATCH < longest <= 2 * BATCH + 256


@pytest.mark.parametrize("group_size", [1, 2])
def test_little_that_goes_lets_nothing_be_built_anew(group_size: int) -> None:
    """Rebuilding a list is one step for the counter, however long the list."""
    index = filled(SMALL, group_size)
    partition = index.partition("p")
    queue = partition._queues.ready("u", frozenset("x"), group_size, 0)
    assert partition.is_ready("u", frozenset("x"), SMALL)
    log, heap = partition._queues._log, queue._heap
    index.clear("p", ids(2 * BATCH, 2), "many")
    assert partition._queues._log is log
    assert queue._heap is heap


def test_a_claim_does_not_look_again_at_rows_that_were_claimed() -> None:
    index = filled(LARGE)
    early = steps(lambda: claim(index))
    claim(index, rows=LARGE // 2)
    assert steps(lambda: claim(index)) <= early * 1.05 + 50


def test_a_log_that_was_rebuilt_keeps_every_row() -> None:
    index = filled(LARGE)
    for start in range(BATCH, LARGE - BATCH, BATCH):
        index.clear("p", ids(start), "many")
    left = [*ids(LARGE - BATCH), *ids(LARGE, 4)]
    rows = index.partition("p").claim("t", frozenset("x"), LARGE)
    assert [row.sample_id for row in rows] == left

"""``ReadyQueue`` and the grouping of rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.backends.index import Extent, Index, IndexRow
from rlconform.backends.index.ready_queue import GroupQueue, ReadyQueue, RowQueue
from rlconform.backends.index.row import generation_of


@pytest.mark.parametrize(
    ("sample_id", "generation"),
    [
        ("uid_g0", ("uid", 0)),
        ("a_g1_g12", ("a_g1", 12)),
        ("_g3", ("", 3)),
        ("line\nbreak_g1", ("line\nbreak", 1)),
        ("uid_g", None),
        ("uid_g-1", None),
        ("uid_g01", None),
        ("uid_g" + "9" * 5000, None),
        ("uid_g1 ", None),
        ("uid_g٣", None),
        ("uid", None),
        ("g1", None),
    ],
)
def test_a_generation_is_read_from_the_end_of_an_id(
    sample_id: str, generation: tuple[str, int] | None
) -> None:
    assert generation_of(sample_id) == generation


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), group_size=st.integers(1, 3))
def test_a_queue_agrees_with_a_plain_list(seed: int, group_size: int) -> None:
    """Compares random adds, discards and takes with a list that every operation searches."""
    rng = random.Random(seed)
    queue: ReadyQueue = RowQueue() if group_size == 1 else GroupQueue(group_size)
    ready: list[IndexRow] = []

    def whole_groups() -> list[list[IndexRow]]:
        groups: dict[Any, list[IndexRow]] = {}
        for row in sorted(ready, key=lambda row: row.age):
            groups.setdefault(row.group, []).append(row)
        whole = [rows for rows in groups.values() if len(rows) == group_size]
        return sorted(whole, key=lambda rows: rows[-1].age)

    for age in range(200):
        group = rng.randrange(40) if group_size > 1 else age
        row = IndexRow(f"row{age}", age, "me")
        row.group = (None, group)
        if sum(other.group == row.group for other in ready) < group_size:
            queue.add(row)
            ready.append(row)
        if ready and rng.random() < 0.6:
            gone = rng.choice(ready)
            queue.discard(gone)
            queue.discard(gone)
            ready.remove(gone)
        if rng.random() < 0.1:
            n_groups = rng.randrange(4)
            expected = [row for rows in whole_groups()[:n_groups] for row in rows]
            assert queue.take(n_groups) == expected
            ready = [row for row in ready if row not in expected]
        assert len(queue) == len(whole_groups())


@pytest.mark.parametrize("group_size", [1, 2])
def test_a_queue_forgets_rows_that_left_unclaimed(group_size: int) -> None:
    """The queue of a task that never claims stays bounded while rows are put and cleared."""
    queue = RowQueue() if group_size == 1 else GroupQueue(group_size)
    for age in range(10_000):
        row = IndexRow(f"row{age}", age, "me")
        row.group = (None, age // group_size)
        queue.add(row)
        if age % group_size == group_size - 1:
            queue.discard(row)
    assert len(queue) == 0
    assert len(queue._heap) < 200


IDS = ["u_g0", "v_g0", "v_g1", "w_g1", "u_g1", "w_g0"]


def grouped(ids: Sequence[str]) -> Index:
    index = Index()
    index.register("p", ["t"], 2)
    index.commit("p", ids, {"x": Extent("int64", 8)}, None, None, "me")
    return index


@pytest.mark.parametrize("looked_first", [False, True])
@pytest.mark.parametrize("at_once", [2, 4, 6])
def test_the_order_of_groups_does_not_hang_on_how_far_a_claim_has_looked(
    at_once: int, looked_first: bool
) -> None:
    """A claim orders groups by their youngest row, which completed the group."""
    partition = grouped(IDS).partition("p")
    required = frozenset("x")
    if looked_first:
        assert partition.is_ready("t", required, 6)
    claimed = [
        row.sample_id
        for _ in range(0, 6, at_once)
        for row in partition.claim("t", required, at_once)
    ]
    assert claimed == ["v_g0", "v_g1", "u_g0", "u_g1", "w_g1", "w_g0"]


@pytest.mark.parametrize("group_size", [1, 2])
def test_a_row_leaves_every_queue_of_the_task_that_claims_it(group_size: int) -> None:
    index = Index()
    index.register("p", ["t", "u"], group_size)
    extents = {name: Extent("int64", 8) for name in "xy"}
    index.commit("p", ["u_g0", "u_g1", "v_g0", "v_g1"], extents, None, None, "me")
    partition = index.partition("p")
    both, one = frozenset("xy"), frozenset("x")
    assert all(partition.is_ready(task, names, 4) for task in "tu" for names in (both, one))
    assert [row.sample_id for row in partition.claim("t", both, 2)] == ["u_g0", "u_g1"]
    assert [row.sample_id for row in partition.claim("t", one, 4)] == ["v_g0", "v_g1"]
    assert [row.sample_id for row in partition.claim("t", both, 4)] == []
    assert len(partition.claim("u", one, 4)) == 4

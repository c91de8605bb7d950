"""``RowTable``: overlapping puts, claims and clears, one step at a time."""

from __future__ import annotations

import pytest

from rlconform.backends.transfer_queue.row_table import RowTable
from rlconform.contract import PlaneUnavailable, UnknownSample

OWNER = "this process"
LEASE_S = 10.0


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> RowTable:
    table = RowTable(clock)
    table.register(["train"], 1)
    return table


def pin(
    table: RowTable, token: int, rows: dict[str, int], field: str = "x", kind: str = "int64"
) -> bool:
    return table.reserve(token, list(rows), list(rows.values()), {field: kind}, LEASE_S)


def commit(table: RowTable, token: int, n_rows: int, field: str = "x") -> list[list[object]]:
    return table.commit(token, {field: [8] * n_rows}, None, OWNER)


def put(
    table: RowTable, token: int, rows: dict[str, int], field: str = "x", kind: str = "int64"
) -> None:
    assert pin(table, token, rows, field, kind)
    commit(table, token, len(rows), field)


def selected(table: RowTable, ready: list[int], n: int = 10, *, exact: bool = False) -> list[str]:
    return [row.sample_id for row in table.select("train", ready, ["x"], n, exact)]


def test_nothing_shows_before_the_commit(table: RowTable) -> None:
    pin(table, 1, {"a": 0})
    with pytest.raises(UnknownSample):
        table.locate(["a"], ["x"])
    assert selected(table, [0]) == []
    commit(table, 1, 1)
    assert table.locate(["a"], ["x"]) == [[0], {"x": [[1], [8]]}, False]
    assert selected(table, [0]) == ["a"]


def test_an_aborted_put_gives_its_indexes_and_keys_back(table: RowTable) -> None:
    put(table, 1, {"a": 0})
    pin(table, 2, {"a": 0, "b": 1})
    freed, keys = table.abort(2, ["a", "b"], [0, 1], ["x"])
    assert freed == [[1, ["x"]]]
    assert keys == ["b"]
    assert table.locate(["a"], ["x"])[0] == [0]


def test_two_puts_to_one_field_of_a_row_wait_for_each_other(table: RowTable) -> None:
    assert pin(table, 1, {"a": 0})
    assert not pin(table, 2, {"b": 1, "a": 0})
    assert pin(table, 3, {"a": 0}, field="y")
    commit(table, 1, 1)
    assert pin(table, 2, {"b": 1, "a": 0})


def test_a_put_that_outlives_its_lease_is_pushed_aside_and_told(
    table: RowTable, clock: Clock
) -> None:
    pin(table, 1, {"a": 0})
    clock.now = LEASE_S
    assert pin(table, 2, {"a": 0})
    with pytest.raises(PlaneUnavailable):
        commit(table, 1, 1)


def test_an_index_is_kept_while_a_put_writes_there(table: RowTable) -> None:
    put(table, 1, {"a": 0})
    pin(table, 2, {"a": 0}, field="y")
    freed, keys = table.drop(["a"], OWNER)
    assert freed == []
    assert keys == ["a"]
    assert commit(table, 2, 1, "y") == [[0, ["x", "y"]]]
    with pytest.raises(UnknownSample):
        table.locate(["a"], ["y"])


def test_an_index_under_a_dead_put_is_given_back(table: RowTable, clock: Clock) -> None:
    put(table, 1, {"a": 0})
    pin(table, 2, {"a": 0}, field="y")
    clock.now = LEASE_S
    assert table.drop(["a"], OWNER)[0] == [[0, ["x"]]]
    with pytest.raises(PlaneUnavailable):
        commit(table, 2, 1, "y")


def test_a_field_keeps_its_kind_unless_all_rows_are_replaced(table: RowTable) -> None:
    put(table, 1, {"a": 0, "b": 1})
    with pytest.raises(ValueError, match="holds int64 in 1 other rows"):
        pin(table, 2, {"a": 0}, kind="float32")
    put(table, 3, {"b": 1, "a": 0}, kind="float32")
    table.drop(["a", "b"], OWNER)
    put(table, 4, {"c": 2}, kind="object")


def test_a_put_whose_row_was_replaced_meanwhile_changes_no_kind(table: RowTable) -> None:
    pin(table, 1, {"a": 0})
    commit(table, 1, 1)
    pin(table, 2, {"a": 0}, kind="float32")
    table.drop(["a"], OWNER)
    put(table, 3, {"a": 1})
    assert commit(table, 2, 1) == [[0, ["x"]]]
    put(table, 4, {"b": 2})
    with pytest.raises(ValueError, match="holds int64 in 1 other rows"):
        pin(table, 5, {"a": 1}, kind="float32")


def test_first_puts_of_two_kinds_at_once_leave_one(table: RowTable) -> None:
    pin(table, 1, {"a": 0})
    pin(table, 2, {"b": 1}, kind="float32")
    commit(table, 1, 1)
    with pytest.raises(ValueError, match="holds int64 in 1 other rows"):
        commit(table, 2, 1)


def test_claims_go_by_the_order_of_puts_not_of_indexes(table: RowTable) -> None:
    put(table, 1, {"old": 7})
    put(table, 2, {"new": 0})
    assert selected(table, [0, 7]) == ["old", "new"]
    assert selected(table, [0, 7], 1) == ["old"]
    assert selected(table, [0, 7], 3, exact=True) == []


def test_groups_are_selected_whole(table: RowTable) -> None:
    table.register(["train"], 2)
    put(table, 1, {"p_g0": 0, "q_g0": 1, "q_g1": 2})
    assert selected(table, [0, 1, 2]) == ["q_g0", "q_g1"]
    put(table, 2, {"p_g1": 3})
    assert selected(table, [0, 1, 2, 3], 3) == ["p_g0", "p_g1"]
    with pytest.raises(ValueError, match="batch_size=3"):
        selected(table, [0], 3, exact=True)


def test_tags_merge_and_rows_with_tags_alone_are_not_produced(table: RowTable) -> None:
    table.stamp(["a"], [{"v": 1}], OWNER)
    table.stamp(["a"], [{"w": 2}], OWNER)
    assert table.indexes == []
    put(table, 1, {"a": 0})
    [row] = table.select("train", [0], ["x"], 1, exact=True)
    assert row.tags == {"v": 1, "w": 2}


def test_none_drops_the_rows_that_the_owner_made(table: RowTable) -> None:
    put(table, 1, {"mine": 0})
    pin(table, 2, {"theirs": 1, "mine": 0}, field="y")
    table.commit(2, {"y": [8, 8]}, None, "another process")
    table.drop(None, OWNER)
    assert table.locate(["theirs"], ["y"])[0] == [1]
    with pytest.raises(UnknownSample):
        table.locate(["mine"], ["y"])


def test_occupied_counts_rows_and_those_on_their_way(table: RowTable) -> None:
    put(table, 1, {"a": 0})
    pin(table, 2, {"a": 0, "b": 1}, field="y")
    assert table.occupied == 2
    assert table.count_new([0, 1, 2]) == 1


def test_registering_an_empty_partition_starts_it_anew(table: RowTable) -> None:
    put(table, 1, {"a": 0})
    table.register(["other"], 1)
    assert table.ever_produced
    table.drop(["a"], OWNER)
    table.register(["other"], 1)
    assert not table.ever_produced
    assert table.tasks == {"other"}

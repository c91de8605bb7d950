"""The TransferQueue adapter's ledger: puts, claims and clears that overlap, one step at a time."""

from __future__ import annotations

import pytest

from rlconform.backends.transfer_queue.row_state import Conflict, Unready
from rlconform.backends.transfer_queue.row_table import RowTable
from rlconform.backends.transfer_queue.write_leases import LeaseExpired

OWNER = "this process"
LEASE_S = 10.0


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> RowTable:
    ledger = RowTable(clock)
    ledger.register(["train"], 1)
    return ledger


def pin(
    ledger: RowTable, token: int, rows: dict[str, int], field: str = "x", kind: str = "int64"
) -> bool:
    return ledger.pin(token, list(rows), list(rows.values()), {field: kind}, LEASE_S)


def commit(ledger: RowTable, token: int, n_rows: int, field: str = "x") -> list[list[object]]:
    return ledger.commit(token, {field: [8] * n_rows}, None, OWNER)


def put(
    ledger: RowTable, token: int, rows: dict[str, int], field: str = "x", kind: str = "int64"
) -> None:
    assert pin(ledger, token, rows, field, kind)
    commit(ledger, token, len(rows), field)


def selected(ledger: RowTable, ready: list[int], n: int = 10, *, exact: bool = False) -> list[str]:
    return [row.sample_id for row in ledger.select("train", ready, ["x"], n, exact)]


def test_nothing_shows_before_the_commit(ledger: RowTable) -> None:
    pin(ledger, 1, {"a": 0})
    with pytest.raises(Unready):
        ledger.locate(["a"], ["x"])
    assert selected(ledger, [0]) == []
    commit(ledger, 1, 1)
    assert ledger.locate(["a"], ["x"]) == [[0], {"x": [[1], [8]]}, False]
    assert selected(ledger, [0]) == ["a"]


def test_an_aborted_put_gives_its_indexes_and_keys_back(ledger: RowTable) -> None:
    put(ledger, 1, {"a": 0})
    pin(ledger, 2, {"a": 0, "b": 1})
    freed, keys = ledger.abort(2, ["a", "b"], [0, 1], ["x"])
    assert freed == [[1, ["x"]]]
    assert keys == ["b"]
    assert ledger.locate(["a"], ["x"])[0] == [0]


def test_two_puts_to_one_field_of_a_row_wait_for_each_other(ledger: RowTable) -> None:
    assert pin(ledger, 1, {"a": 0})
    assert not pin(ledger, 2, {"b": 1, "a": 0})
    assert pin(ledger, 3, {"a": 0}, field="y")
    commit(ledger, 1, 1)
    assert pin(ledger, 2, {"b": 1, "a": 0})


def test_a_put_that_outlives_its_lease_is_pushed_aside_and_told(
    ledger: RowTable, clock: Clock
) -> None:
    pin(ledger, 1, {"a": 0})
    clock.now = LEASE_S
    assert pin(ledger, 2, {"a": 0})
    with pytest.raises(LeaseExpired):
        commit(ledger, 1, 1)


def test_an_index_is_kept_while_a_put_writes_there(ledger: RowTable) -> None:
    put(ledger, 1, {"a": 0})
    pin(ledger, 2, {"a": 0}, field="y")
    freed, keys = ledger.drop(["a"], OWNER)
    assert freed == []
    assert keys == ["a"]
    assert commit(ledger, 2, 1, "y") == [[0, ["x", "y"]]]
    with pytest.raises(Unready):
        ledger.locate(["a"], ["y"])


def test_an_index_under_a_dead_put_is_given_back(ledger: RowTable, clock: Clock) -> None:
    put(ledger, 1, {"a": 0})
    pin(ledger, 2, {"a": 0}, field="y")
    clock.now = LEASE_S
    assert ledger.drop(["a"], OWNER)[0] == [[0, ["x"]]]
    with pytest.raises(LeaseExpired):
        commit(ledger, 2, 1, "y")


def test_a_field_keeps_its_kind_unless_all_rows_are_replaced(ledger: RowTable) -> None:
    put(ledger, 1, {"a": 0, "b": 1})
    with pytest.raises(Conflict):
        pin(ledger, 2, {"a": 0}, kind="float32")
    put(ledger, 3, {"b": 1, "a": 0}, kind="float32")
    ledger.drop(["a", "b"], OWNER)
    put(ledger, 4, {"c": 2}, kind="object")


def test_first_puts_of_two_kinds_at_once_leave_one(ledger: RowTable) -> None:
    pin(ledger, 1, {"a": 0})
    pin(ledger, 2, {"b": 1}, kind="float32")
    commit(ledger, 1, 1)
    with pytest.raises(Conflict):
        commit(ledger, 2, 1)


def test_claims_go_by_the_order_of_puts_not_of_indexes(ledger: RowTable) -> None:
    put(ledger, 1, {"old": 7})
    put(ledger, 2, {"new": 0})
    assert selected(ledger, [0, 7]) == ["old", "new"]
    assert selected(ledger, [0, 7], 1) == ["old"]
    assert selected(ledger, [0, 7], 3, exact=True) == []


def test_groups_are_selected_whole(ledger: RowTable) -> None:
    ledger.register(["train"], 2)
    put(ledger, 1, {"p_g0": 0, "q_g0": 1, "q_g1": 2})
    assert selected(ledger, [0, 1, 2]) == ["q_g0", "q_g1"]
    put(ledger, 2, {"p_g1": 3})
    assert selected(ledger, [0, 1, 2, 3], 3) == ["p_g0", "p_g1"]
    with pytest.raises(Unready):
        selected(ledger, [0], 3, exact=True)


def test_tags_merge_and_rows_with_tags_alone_are_not_produced(ledger: RowTable) -> None:
    ledger.stamp(["a"], [{"v": 1}], OWNER)
    ledger.stamp(["a"], [{"w": 2}], OWNER)
    assert ledger.produced("train") == []
    put(ledger, 1, {"a": 0})
    [row] = ledger.select("train", [0], ["x"], 1, exact=True)
    assert row.tags == {"v": 1, "w": 2}


def test_none_drops_the_rows_that_the_owner_made(ledger: RowTable) -> None:
    put(ledger, 1, {"mine": 0})
    pin(ledger, 2, {"theirs": 1, "mine": 0}, field="y")
    ledger.commit(2, {"y": [8, 8]}, None, "another process")
    ledger.drop(None, OWNER)
    assert ledger.locate(["theirs"], ["y"])[0] == [1]
    with pytest.raises(Unready):
        ledger.locate(["mine"], ["y"])


def test_occupied_counts_rows_and_those_on_their_way(ledger: RowTable) -> None:
    put(ledger, 1, {"a": 0})
    pin(ledger, 2, {"a": 0, "b": 1}, field="y")
    assert ledger.occupied == 2
    assert ledger.count_new([0, 1, 2]) == 1


def test_registering_an_empty_partition_starts_it_anew(ledger: RowTable) -> None:
    put(ledger, 1, {"a": 0})
    ledger.register(["other"], 1)
    assert ledger.ever_produced
    ledger.drop(["a"], OWNER)
    ledger.register(["other"], 1)
    assert not ledger.ever_produced
    with pytest.raises(Unready):
        ledger.produced("train")

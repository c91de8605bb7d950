"""The reference model after short call sequences, and the results that it does not define."""

from __future__ import annotations

import pytest

from rlconform.certify.properties.reference_model import PartitionModel

IDS = ["a", "b"]


def filled(*fields: str) -> PartitionModel:
    model = PartitionModel()
    model.put(IDS, fields or ["x"], 1)
    return model


def test_a_row_is_ready_for_each_task_until_that_task_has_claimed_it() -> None:
    model = filled()
    assert model.ready("t", ["x"]) == IDS
    model.claim("t", ["a"])
    assert (model.ready("t", ["x"]), model.ready("u", ["x"])) == (["b"], IDS)
    assert model.why_not_ready("a", "t", ["x"]) == "claimed by t before"


def test_neither_overwrite_nor_append_makes_a_claimed_row_ready() -> None:
    model = filled()
    model.claim("t", IDS)
    model.put(IDS, ["x", "y"], 2)
    assert model.ready("t", ["x"]) == model.ready("t", ["x", "y"]) == []
    assert model.rows["a"].versions == {"x": 2, "y": 2}


def test_a_row_is_ready_with_its_last_field() -> None:
    model = filled("x")
    model.put(["a"], ["y"], 2)
    assert model.ready("t", ["x", "y"]) == ["a"]
    assert model.why_not_ready("b", "t", ["x", "y"]) == "without some of ['x', 'y']"


def test_a_cleared_id_starts_anew() -> None:
    model = filled("x", "y")
    model.claim("t", IDS)
    model.clear(["a", "ghost"])
    assert (model.cleared["a"], model.cleared["ghost"]) == (1, 0)
    assert model.why_not_ready("a", "t", ["x"]) == "cleared"
    model.put(["a"], ["x"], 2)
    assert model.ready("t", ["x"]) == ["a"]
    assert not model.produced("a", ["y"])


def test_none_clears_all() -> None:
    model = filled()
    model.clear(None)
    assert model.rows == {}


@pytest.mark.parametrize(
    ("ids", "fields", "expected"),
    [
        (["a", "b"], ["x"], "rows"),
        (["a", "b"], ["x", "y"], "unproduced"),
        (["a", "ghost"], ["x"], "unknown"),
        (["a", "gone"], ["x"], "cleared"),
        (["ghost", "gone"], ["x"], "cleared"),
    ],
)
def test_what_a_read_must_do(ids: list[str], fields: list[str], expected: str) -> None:
    model = filled()
    model.put(["a"], ["y"], 2)
    model.put(["gone"], ["x"], 3)
    model.clear(["gone"])
    assert model.readable(ids, fields) == expected


def test_status_is_true_while_every_produced_row_is_claimed() -> None:
    model = filled()
    assert model.consumed(["t"]) is False
    model.claim("t", IDS)
    model.put(["tags_only"], [], 2, {"tags_only": {"m": 1}})
    assert model.consumed(["t"]) is True
    assert model.consumed(["t", "u"]) is False
    model.put(["c"], ["y"], 3)
    assert model.consumed(["t"]) is False


def test_the_status_without_rows_is_left_open() -> None:
    model = PartitionModel()
    assert model.consumed(["t"]) is None
    model = filled()
    model.clear(IDS)
    assert model.consumed(["t"]) is None


def test_tags_may_be_merged_or_replaced_but_not_lost() -> None:
    model = PartitionModel()
    model.put(["a"], [], 1, {"a": {"m": 1, "n": 1}})
    model.put(["a"], ["x"], 2)
    model.put(["a"], [], 3, {"a": {"m": 2}})
    row = model.rows["a"]
    assert row.allows({"m": 2, "n": 1})
    assert row.allows({"m": 2})
    for wrong in ({"m": 1, "n": 1}, {"n": 1}, {}, {"m": 2, "n": 2}, {"m": 2, "other": 1}):
        assert not row.allows(wrong)


def test_a_put_without_tags_leaves_them() -> None:
    model = PartitionModel()
    model.put(["a"], ["x"], 1, {"a": {"m": 1}})
    model.put(["a"], ["y"], 2)
    assert model.rows["a"].allows({"m": 1})
    assert not model.rows["a"].allows({})

"""The order of checks: a short one of each requirement first, long ones last, in each group."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlconform._resources import resource_dir
from rlconform.certify.isolation.shares import Share
from rlconform.certify.plugin.order import ordered

SUITES = resource_dir("suites")


def item(place: str, requirement: str, **mark: Any) -> Any:
    """A collected check; ``scattered`` says that several processes make its calls."""
    scattered = mark.pop("scattered", False)
    kwargs = {"ends_plane": False, "race": False, "patience": 0.0} | mark
    path = Path(SUITES / place.partition("::")[0])
    made = SimpleNamespace(args=(requirement,), kwargs=kwargs)
    return SimpleNamespace(
        nodeid=place,
        path=path,
        callspec=SimpleNamespace(params={"scattered": scattered}),
        get_closest_marker=lambda _name: made,
    )


ITEMS = [
    item("unit/contract/test_claim.py::waits", "CLAIM-06", patience=60.0),
    item("unit/contract/test_claim.py::first", "CLAIM-01"),
    item("unit/contract/test_claim.py::second", "CLAIM-01"),
    item("unit/contract/test_claim.py::scattered", "CLAIM-01", scattered=True),
    item("unit/contract/test_life.py::closes", "LIFE-04", ends_plane=True),
    item("unit/contract/test_par.py::shares", "PAR-01"),
    item("unit/properties/test_put_properties.py::examples", "PUT-01"),
    item("unit/contract/test_put.py::first", "PUT-01"),
    item("unit/contract/test_put.py::race", "PUT-02", race=True),
]


def names(telling_first: bool) -> list[str]:
    return [one.nodeid.partition("test_")[2] for one in ordered(ITEMS, telling_first)]


def test_a_short_check_of_each_requirement_comes_first() -> None:
    assert names(True) == [
        "claim.py::first", "put.py::first", "claim.py::second", "par.py::shares",
        "claim.py::waits", "put_properties.py::examples", "put.py::race",
        "claim.py::scattered", "life.py::closes",
    ]  # fmt: skip


def test_otherwise_the_order_of_the_files_stays() -> None:
    kept = [one.nodeid.partition("test_")[2] for one in ITEMS]
    kept.remove("claim.py::scattered")
    kept.remove("life.py::closes")
    assert names(False) == [*kept, "claim.py::scattered", "life.py::closes"]


@pytest.mark.parametrize("telling_first", [True, False])
def test_no_check_is_lost(telling_first: bool) -> None:
    assert sorted(names(telling_first)) == sorted(one.nodeid.partition("test_")[2] for one in ITEMS)


def test_chosen_checks_come_before_all_others() -> None:
    chosen = ["unit/contract/test_put.py::race", "unit/contract/test_life.py::closes"]
    order = [one.nodeid for one in ordered(ITEMS, True, chosen)]
    assert order[:2] == chosen
    assert order[2:] == [one.nodeid for one in ordered(ITEMS, True) if one.nodeid not in chosen]


def test_each_share_begins_what_lies_between_at_another_file() -> None:
    files = ["test_claim.py", "test_get.py", "test_put.py", "test_tag.py"]
    many = [item(f"unit/contract/{file}::{n}", "CLAIM-01") for file in files for n in range(5)]
    orders = [ordered(many, True, share=Share(number, 3)) for number in range(3)]
    for order in orders:
        assert order[0] is many[0], "the short check of the requirement comes first"
        assert sorted(one.nodeid for one in order) == [one.nodeid for one in many]
        assert sum(a.path != b.path for a, b in pairwise(order[1:])) == len(files) - 1
    assert len({order[1].path for order in orders}) == 3

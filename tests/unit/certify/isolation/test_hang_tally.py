"""A run gives a kind of call up after it hung in several checks of several requirements."""

from __future__ import annotations

import json
from dataclasses import asdict

from rlconform.certify.isolation.hang_tally import HungCalls


def test_three_checks_of_two_requirements_give_a_call_up() -> None:
    hangs = HungCalls()
    hangs.note("get_data", "a", "GET-11")
    hangs.note("get_data", "b", "GET-11")
    hangs.note("get_data", "c", "GET-11")
    assert hangs.given_up == {}
    hangs.note("get_data", "d", "PUT-13")
    assert list(hangs.given_up) == ["get_data"]
    assert "4 checks (GET-11, PUT-13)" in hangs.given_up["get_data"]


def test_a_check_counts_once_and_kinds_are_told_apart() -> None:
    hangs = HungCalls()
    for requirement in ("GET-11", "PUT-13", "CLAIM-09"):
        hangs.note("get_data", "a", requirement)
        hangs.note("claim_meta, blocking", requirement, requirement)
    assert list(hangs.given_up) == ["claim_meta, blocking"]


def test_no_limit_gives_nothing_up() -> None:
    hangs = HungCalls(0)
    for number in range(9):
        hangs.note("get_data", str(number), f"GET-0{number}")
    assert hangs.given_up == {}


def test_it_travels_to_another_process() -> None:
    hangs = HungCalls(2)
    hangs.note("close", "a", "LIFE-01")
    there = HungCalls(**json.loads(json.dumps(asdict(hangs))))
    assert there.given_up == {}
    there.note("close", "b", "LIFE-02")
    assert list(there.given_up) == ["close"]

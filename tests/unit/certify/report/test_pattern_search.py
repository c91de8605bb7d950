"""A waiver's pattern is searched for a limited time, whoever wrote it."""

from __future__ import annotations

import time
from datetime import date

import pytest

from rlconform.certify.report.pattern_search import PatternTooSlow, found_in
from rlconform.certify.report.waivers import Waiver, apply_waivers
from rlconform.certify.results import Outcome, RequirementResult

#: A pattern and a text on which Python's search takes longer than the universe has existed.
SLOW, TEXT = r"(a+)+$", "a" * 100 + "b"


def test_a_pattern_is_found_where_it_is() -> None:
    assert found_in("b+c", ["abbc", "abb", "\ud800bc"]) == [True, False, True]
    assert found_in("other bytes", ["got other bytes", "bytes"]) == [True, False]


def test_a_slow_search_is_ended() -> None:
    began = time.monotonic()
    with pytest.raises(PatternTooSlow, match=r"no answer within 0\.5 s"):
        found_in(SLOW, [TEXT], seconds=0.5)
    assert time.monotonic() - began < 30


def test_a_waiver_with_a_slow_pattern_waives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_in, "__defaults__", (0.5,))
    result = RequirementResult("GET-04", Outcome.FAIL, TEXT, [])
    waiver = Waiver("GET-04", "known", "tracker/1", SLOW, date(2999, 1, 1))
    results, problems = apply_waivers([result], [waiver], date(2026, 1, 1))
    assert [one.outcome for one in results] == [Outcome.FAIL]
    assert problems == [
        f"waiver GET-04 does not match a failure: {SLOW!r} gave no answer within 0.5 s; simplify it"
    ]

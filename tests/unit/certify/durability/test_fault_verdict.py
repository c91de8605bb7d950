"""The verdict on a run with faults, the moments of faults, and the slopes of samples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.explain import HistoryViolation
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.durability.cost_growth import growth, slower
from rlconform.certify.durability.fault_verdict import (
    DurabilityAnswer,
    Indeterminate,
    expect_durable,
    judge_faults,
)
from rlconform.certify.durability.moments import after_claiming, during, has_made, has_made_each
from rlconform.certify.durability.nemeses import ProcessFault

KILLED = ProcessFault("killed", "producer", 7, 10.0, 11.0)


def call(start: float, end: float | None = None, **how: object) -> Operation:
    made = Operation(who="staying", op="put", start=start, end=end, ids=("r",), fields=("x",))
    return replace(made, **how)  # type: ignore[arg-type]  # attributes of an operation


CUT_OFF = call(9, None, who="victim", killed=True)
HEARD = call(12, 13)


def test_a_run_whose_survivor_goes_on_passes() -> None:
    verdict = judge_faults(History([CUT_OFF, HEARD]), [KILLED], ["staying"], [hung, refused])
    assert verdict.answer is DurabilityAnswer.PASS
    assert verdict.reason == "1 faults; calls: 1 ok, 0 failed, 1 unknown"
    expect_durable(verdict, History([HEARD]))


@pytest.mark.parametrize("bad", [call(12, None), call(12, 13, error="Bug: no")])
@pytest.mark.parametrize("missed", ["", "the moment did not come"])
def test_an_anomaly_fails_whatever_the_fault_was(bad: Operation, missed: str) -> None:
    history = History([CUT_OFF, HEARD, bad])
    faults = [replace(KILLED, missed=missed)]
    verdict = judge_faults(history, faults, ["staying"], [hung, refused])
    assert verdict.answer is DurabilityAnswer.FAIL
    with pytest.raises(HistoryViolation):
        expect_durable(verdict, history)


@pytest.mark.parametrize(
    ("faults", "operations", "reason"),
    [
        ([], [HEARD], "no fault happened"),
        ([replace(KILLED, missed="it had ended")], [HEARD], "it had ended"),
        ([KILLED], [call(1, 2)], "staying made no call after the last fault"),
        ([KILLED], [call(10.5, 13)], "staying made no call after the last fault"),
    ],
)
def test_a_run_that_shows_nothing_is_indeterminate(
    faults: list[ProcessFault], operations: list[Operation], reason: str
) -> None:
    verdict = judge_faults(History(operations), faults, ["staying"], [hung])
    assert (verdict.answer, verdict.reason) == (DurabilityAnswer.INDETERMINATE, reason)
    with pytest.raises(Indeterminate, match="indeterminate: "):
        expect_durable(verdict, History(operations))


def test_moments_are_read_from_the_calls_so_far() -> None:
    done, under_way = [call(1, 2), call(3, 4)], call(5, None)
    assert not during("put", after=2)(done)
    assert during("put", after=2)([*done, under_way])
    assert not during("put", after=3)([*done, under_way])
    assert not during("claim", after=0)([*done, under_way])
    claimed = call(6, 7, op="claim", asked=1)
    reading = call(8, None, op="get")
    assert after_claiming(1)([claimed, reading])
    assert not after_claiming(1)([claimed, reading, call(9, None, op="clear")])
    assert not after_claiming(1)([call(6, 7, op="claim", asked=1, ids=())])
    assert not after_claiming(1)([call(6, 7, op="claim", asked=2)])
    failed = call(5, 6, error="Bug: no")
    assert has_made(2)([done[0], failed])
    assert not has_made(2, well=True)([done[0], failed])
    assert not has_made(1, since=3)(done)
    assert has_made_each(("put", "get"), since=0)([*done, replace(reading, end=9.0)])
    assert not has_made_each(("put", "get"), since=1)([*done, reading])


def test_a_slope_ignores_the_start_and_outliers() -> None:
    x = list(map(float, range(60)))
    grows = growth(x, [500.0] * 20 + [2 * n for n in x[20:]])
    assert grows is not None
    assert grows.per_unit == pytest.approx(2.0)
    assert grows.over(10) == pytest.approx(20.0)
    flat = growth(x, [100.0 + 50 * (n % 13 == 0) for n in range(60)])
    assert flat is not None
    assert abs(flat.per_unit) < 0.01
    assert growth(x[:7], x[:7]) is None


def test_calls_are_slower_only_by_a_factor_and_by_seconds() -> None:
    fast = [0.001, 0.001, 0.001, 0.5]
    assert not slower(fast, [0.0029] * 4, 3.0, 0.002)
    assert slower(fast, [0.0040] * 4, 3.0, 0.002)
    assert not slower([0.00001] * 4, [0.0005] * 4, 3.0, 0.002)

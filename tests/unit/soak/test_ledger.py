"""The ledger of a soak run, the judge of its samples, and the geometry of its plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rlconform.certify.concurrency.operation import Operation, Value
from rlconform.certify.durability.fault_verdict import DurabilityAnswer
from rlconform.soak.judge import judge_process, judge_soak
from rlconform.soak.ledger import SoakLedger
from rlconform.soak.plot import plot
from rlconform.soak.samples import CallRates, ProcessSeries


def put(version: int, row: str = "p0_0") -> Operation:
    return Operation(who="producer0", op="put", start=0, end=1, ids=(row,), version=version)


def got(value: Value, row: str = "p0_0", who: str = "claimer1", **other: Value) -> Operation:
    values = ({"x": value, "y": value} | other,)
    return Operation(who=who, op="get", start=2, end=3, ids=(row,), values=values)


def cleared(row: str = "p0_0") -> Operation:
    return Operation(who="claimer1", op="clear", start=4, end=5, ids=(row,))


def fed(*operations: Operation, drained: bool = True) -> SoakLedger:
    ledger = SoakLedger()
    for op in operations:
        ledger.feed(op, op.who[:-1])
    ledger.close(drained)
    return ledger


@pytest.mark.parametrize(
    "operations",
    [
        [put(1), got(1), cleared(), put(2), got(2), cleared()],
        [got(1), put(1), cleared()],  # the claimer's calls arrived first
        [put(1), got(1, who="reader2"), got(1), cleared()],
    ],
)
def test_rows_delivered_once_are_no_problem(operations: Sequence[Operation]) -> None:
    ledger = fed(*operations)
    assert ledger.texts == []
    assert ledger.delivered == sum(op.op == "put" for op in operations)
    assert ledger.in_flight == 0


@pytest.mark.parametrize(
    ("operations", "kind"),
    [
        ([put(1)], "lost"),
        ([put(1), got(1), cleared(), put(2)], "lost"),
        ([put(1), got(1), got(1, who="claimer2")], "duplicated"),
        ([put(1), got(1), cleared(), put(2), got(2), got(1)], "stale"),
        ([got(1)], "phantom"),
        ([put(1), got("row of 'p0_9'"), got(1)], "wrong-row"),
        ([put(1), got("row of 'p0_9'", who="reader2"), got(1)], "wrong-row"),
        ([put(1), put(2), got(1, y=2), got(2)], "torn"),
        ([put(1), got(1), replace(cleared(), error="Bug: no")], "refused"),
    ],
)
def test_each_problem_is_found_once(operations: Sequence[Operation], kind: str) -> None:
    assert fed(*operations).problems == {kind: 1}


def test_a_reader_may_miss_a_cleared_row_and_nobody_else_may() -> None:
    gone = replace(got(1, who="reader2"), values=(), error="UnknownSample: p0_0")
    gone = replace(gone, error_bases=("UnknownSample", "KeyError", "LookupError"))
    assert fed(gone).problems == {}
    assert fed(replace(gone, who="claimer1")).problems == {"refused": 1}


def test_a_clear_frees_its_ids_and_an_interrupted_run_loses_nothing() -> None:
    ledger = SoakLedger()
    assert ledger.feed(put(1), "producer") == []
    assert ledger.in_flight == 1
    assert ledger.feed(cleared(), "claimer") == ["p0_0"]
    ledger.close(drained=False)
    assert ledger.problems == {}


def test_a_call_without_an_answer_counts_once() -> None:
    ledger = SoakLedger()
    for _ in range(3):
        ledger.note_overdue(replace(put(1), end=None), 10.0)
    assert ledger.problems == {"hung": 1}


def process(bytes_held: Sequence[int], descriptors: Sequence[int] = ()) -> ProcessSeries:
    seconds = list(map(float, range(len(bytes_held))))
    return ProcessSeries(
        "storage0", 1, seconds, list(bytes_held), list(descriptors or [9] * len(seconds))
    )


STEADY, LEAKS = [1 << 30] * 60, [(1 << 30) + n * (4 << 20) for n in range(60)]


@pytest.mark.parametrize(
    ("series", "leaks"),
    [
        (process(STEADY), False),
        (process(LEAKS), True),
        (process([n * (1 << 20) for n in range(60)]), False),  # less than a process may grow
        (process(STEADY, [9 + n for n in range(60)]), True),
        (process([(1 << 30) + (n % 2) * (200 << 20) for n in range(60)]), False),
    ],
    ids=["steady", "leak", "small growth", "descriptors", "swings"],
)
def test_a_process_leaks_if_it_grows_steadily(series: ProcessSeries, leaks: bool) -> None:
    judged = judge_process(series)
    assert judged is not None
    assert judged.leaks is leaks


def test_the_verdict_of_a_run() -> None:
    whole = SoakLedger(delivered=5000)
    assert judge_soak(whole, [process(STEADY)], 60).answer is DurabilityAnswer.PASS
    leaking = judge_soak(whole, [process(LEAKS)], 60)
    assert leaking.answer is DurabilityAnswer.FAIL
    assert leaking.reasons == ["storage0 grew steadily by 236 MiB in 59 s"]
    lossy = fed(put(1))
    assert judge_soak(lossy, [process(STEADY)], 60).reasons == ["1 times lost"]
    for unsure in (
        judge_soak(whole, [process(STEADY)], 10),
        judge_soak(SoakLedger(delivered=1), [process(STEADY)], 60),
        judge_soak(whole, [process(STEADY[:5])], 60),
        judge_soak(whole, [process(STEADY)], 60, ["interrupted"]),
    ):
        assert unsure.answer is DurabilityAnswer.INDETERMINATE
        assert len(unsure.reasons) == 1


def test_rates_are_counted_per_interval() -> None:
    rates = CallRates()
    for took in (0.001, 0.003, 0.002):
        rates.add(replace(put(1), end=took))
    rates.end_interval(2.0)
    rates.end_interval(3.0)
    series = rates.series["put"]
    assert (series.total, series.per_second, series.seconds) == (3, [1.5, 0.0], [2.0, 3.0])
    assert series.median_ms == pytest.approx([2.0, 0.0])


def test_a_plot_stays_in_its_frame_and_keeps_peaks() -> None:
    x = list(map(float, range(1000)))
    y = [0.0] * 1000
    y[501] = 42.0
    drawn = plot("t", "c", "ms", {"a": (x, y), "none": ([], [])})
    (line,) = drawn.lines
    points = [tuple(map(float, pair.split(","))) for pair in line.points.split()]
    assert len(points) == 250
    assert all(70 <= across <= 988 and 10 <= down <= 208 for across, down in points)
    assert min(down for _, down in points) == pytest.approx(10 + 198 * (1 - 42 / 50), abs=0.1)
    assert [label for _, label in drawn.across] == [f"{n} ms" for n in range(0, 60, 10)]

"""The three parts of a run's time add up to the total; overlapping calls count once."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlconform.certify.recording.busy_time import BusyTime, merged_seconds
from rlconform.certify.results import CheckResult, Outcome, RunRecord

PATIENCE_S = 10.0


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], 0.0),
        ([(1.0, 3.0)], 2.0),
        ([(1.0, 3.0), (4.0, 5.0)], 3.0),
        ([(1.0, 3.0), (2.0, 5.0)], 4.0),
        ([(1.0, 9.0), (2.0, 3.0), (4.0, 5.0)], 8.0),
        ([(4.0, 5.0), (1.0, 2.0)], 2.0),
        ([(1.0, 1.0)], 0.0),
    ],
)
def test_overlapping_spans_count_once(spans: list[tuple[float, float]], expected: float) -> None:
    assert merged_seconds(spans) == expected


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted).map(tuple)))
def test_merged_spans_are_the_seconds_covered_by_any(spans: list[tuple[int, int]]) -> None:
    covered = {second for start, end in spans for second in range(start, end)}
    assert merged_seconds(spans) == len(covered)


def test_concurrent_threads_count_once() -> None:
    busy = BusyTime()
    gate = threading.Barrier(3)

    def work() -> None:
        gate.wait(PATIENCE_S)
        with busy.running():
            gate.wait(PATIENCE_S)  # all three run now

    started = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert 0 < busy.seconds <= time.monotonic() - started


def test_an_open_block_counts_so_far() -> None:
    busy = BusyTime()
    with busy.running():
        first = busy.seconds  # as for a call that hangs: its time counts as the plane's
        with busy.running():
            assert busy.seconds > first
    whole = busy.seconds
    assert whole == busy.seconds > first > 0


def test_an_error_closes_the_block() -> None:
    busy = BusyTime()
    with pytest.raises(ZeroDivisionError), busy.running():
        _ = 1 / 0
    counted = busy.seconds
    with busy.running():
        pass
    assert busy.seconds >= counted > 0


def test_spans_measured_elsewhere_are_added() -> None:
    busy = BusyTime()
    busy.add([(0.0, 2.0), (1.0, 3.0)])
    assert busy.seconds == 3.0


def result(name: str, plane: float, start: float) -> CheckResult:
    return CheckResult(
        name, "GET-01", Outcome.PASS, seconds=9.0, plane_seconds=plane, start_seconds=start
    )


def test_the_parts_add_up_to_the_whole() -> None:
    results = {name: result(name, 2.0, 0.5) for name in ("a", "b")}
    split = RunRecord(results=results, process_seconds=3.0, seconds=10.0).time_split
    assert (split.total, split.processes, split.plane_calls, split.kit) == (10.0, 4.0, 4.0, 2.0)
    assert split.kit_share == 0.2


def test_a_run_without_time_has_no_share() -> None:
    assert RunRecord().time_split.kit_share == 0.0

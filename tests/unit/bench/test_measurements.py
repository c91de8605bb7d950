"""A run's measurements, and the document made from their figures."""

from __future__ import annotations

from typing import Any

import pytest

from rlconform.bench import runner
from rlconform.bench.client_pool import CallRefused, PlaneLost
from rlconform.bench.document import GROWTH_OPERATIONS, OPERATIONS, BenchDocument
from rlconform.bench.measurements import (
    CHUNK,
    CarryBatch,
    Figures,
    Measurement,
    SlideRows,
    WakeClaim,
    measurements,
)
from rlconform.bench.plan import load_plan, load_shape

TINY, PLAN = load_shape("tiny", quick=True), load_plan(quick=True)


class FakeHandle:
    """A plane process that answers every turn; "wrong" refuses tiny, "lost" dies at the wake."""

    def __init__(self, spec: str, claimers: int, call_s: float) -> None:
        assert claimers == max(PLAN.claim_rate.consumers)
        assert call_s == PLAN.call_seconds
        self.spec, self.about = spec, {"name": spec, "processes": True}

    def await_open(self) -> None: ...

    def dismiss(self) -> None: ...

    def end(self) -> None: ...

    def kill(self) -> None: ...

    def ask(self, measurement: Measurement, method: str, number: int) -> Figures:
        if method != "turn":
            return {}
        if self.spec == "lost" and isinstance(measurement, WakeClaim):
            raise PlaneLost("it hung")
        if isinstance(measurement, CarryBatch):
            if self.spec == "wrong" and number == 3:
                raise CallRefused("other rows")
            return dict.fromkeys(OPERATIONS, float(number))
        if isinstance(measurement, SlideRows):
            return dict.fromkeys(GROWTH_OPERATIONS, 0.5)
        if isinstance(measurement, WakeClaim):
            return {"from_start": 0.2, "from_return": -0.1}
        return {"rate": 10.0 * (number + 1)}


class Recorder:
    """Records the calls of a producer that is the consumer too."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.producer = self.consumer = self

    def call(self, *call: Any) -> tuple[float, float]:
        self.calls.append(call)
        return 0.0, 0.0

    def made(self, wanted: str) -> list[tuple[Any, ...]]:
        """The arguments after the partition of all calls of a method."""
        return [tuple(arguments) for method, _, *arguments in self.calls if method == wanted]


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch) -> BenchDocument:
    monkeypatch.setattr(runner, "PlaneHandle", FakeHandle)
    return runner.BenchRunner(["fast", "wrong", "lost"], [TINY], PLAN, quick=True).measure()


def test_each_figure_is_in_one_row(document: BenchDocument) -> None:
    specs = ("fast", "wrong", "lost")
    found: list[Any] = [
        *((r.target, r.shape, r.operation) for r in document.operations),
        *((r.target, r.consumers) for r in document.claim_rate),
        *((r.target, r.rows_in_partition, r.operation) for r in document.growth),
        *(r.target for r in document.wake),
    ]
    assert len(found) == len(set(found))
    assert set(found) == {
        *((spec, "tiny", name) for spec in specs for name in OPERATIONS),
        *((spec, count) for spec in specs for count in (1, 2, 4)),
        *((spec, rows, name) for spec in specs for rows in (1_000, 10_000)
          for name in GROWTH_OPERATIONS),
        *specs,
    }  # fmt: skip


def test_a_partition_is_filled_once_and_then_slides() -> None:
    (measurement,) = (
        m for m in measurements([], load_plan(quick=False)) if m.title == "100,000 rows"
    )
    recorder = Recorder()
    clients: Any = recorder
    for step in range(measurement.steps):
        measurement.prepare(clients, step)
    for number in range(3):
        measurement.turn(clients, number)
    put: list[int] = []
    for first, count in recorder.made("put_rows"):
        assert count <= CHUNK or len(put) >= 100_000
        put.extend(range(first, first + count))
    assert put == list(range(100_000 + 3 * 64))


def test_each_turn_of_a_shape_has_new_ids() -> None:
    recorder = Recorder()
    clients: Any = recorder
    for number in range(4):
        CarryBatch("tiny", 4, TINY).turn(clients, number)
    assert len(set(recorder.made("put"))) == 4


def test_summary_is_of_the_sample() -> None:
    summary = runner.summarize([4.0, 1.0, 3.0, 2.0, 5.0])
    assert summary.n == 5
    assert (summary.min, summary.p25, summary.median, summary.p75, summary.max) == (1, 2, 3, 4, 5)
    assert summary.p99 == pytest.approx(4.96)
    with pytest.raises(ValueError, match="nothing"):
        runner.summarize([])


def test_warm_up_turns_do_not_count(document: BenchDocument) -> None:
    puts = {r.target: r.seconds for r in document.operations if r.operation == "put"}
    assert puts["fast"] is not None
    assert puts["fast"].n == TINY.repetitions
    assert puts["fast"].min == PLAN.warmups
    (copy,) = document.memcpy
    assert copy.warm.n == copy.fresh.n == 2 * TINY.repetitions + 2  # "wrong" had two that count


def test_a_refusal_takes_the_place_of_figures(document: BenchDocument) -> None:
    of_wrong = [row for row in document.operations if row.target == "wrong"]
    assert [row.operation for row in of_wrong] == list(OPERATIONS)
    assert all(row.seconds is None and row.refused == "other rows" for row in of_wrong)
    assert all(row.refused == "" for row in document.growth)


def test_a_lost_target_keeps_earlier_figures(document: BenchDocument) -> None:
    assert {target.spec: target.reason for target in document.targets if target.reason} == {
        "lost": "lost at wake: it hung"
    }
    assert {row.target: row.refused for row in document.wake if row.refused} == {"lost": "it hung"}
    assert all(row.seconds for row in document.growth if row.target == "lost")


def test_a_document_can_be_read_back(document: BenchDocument) -> None:
    text = document.to_json()
    assert BenchDocument.model_validate_json(text) == document
    assert '"schema": 1' in text
    assert document.wake[0].from_return is not None
    assert document.wake[0].from_return.median == -0.1

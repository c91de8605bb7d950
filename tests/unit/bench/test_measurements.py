"""What a run plans, and what its figures add up to."""

from __future__ import annotations

import pytest

from rlconform.bench.aggregate import Aggregator
from rlconform.bench.document import GROWTH_OPERATIONS, OPERATIONS, BenchDocument, Host
from rlconform.bench.measurements import (
    CHUNK,
    claim_rate_key,
    growth_key,
    measurements,
    operation_key,
    wake_key,
)
from rlconform.bench.plan import load_plan, load_shape
from rlconform.bench.stats import summarize

TINY, PLAN = load_shape("tiny"), load_plan(quick=True)


def test_each_measurement_is_one_contest() -> None:
    planned = measurements([TINY, load_shape("vlm")], PLAN)
    keys = [key for contest in planned for key in contest.keys.values()]
    assert len(keys) == len(set(keys))
    assert set(keys) == {
        *(operation_key(shape, name) for shape in ("tiny", "vlm") for name in OPERATIONS),
        *(claim_rate_key(consumers) for consumers in (1, 2, 4)),
        *(growth_key(name, rows) for name in GROWTH_OPERATIONS for rows in (1_000, 10_000)),
        *(wake_key(since) for since in ("from_start", "from_return")),
    }


def test_a_partition_is_filled_row_by_row_and_slides_on_behind() -> None:
    (contest,) = (c for c in measurements([], load_plan(quick=False)) if c.title == "100,000 rows")
    put: list[int] = []
    for request in contest.prepare:
        _, first, count, rows = request.arguments
        assert count <= CHUNK
        assert rows == 100_000
        put.extend(range(first, first + count))
    for number in range(3):
        _, first, batch = contest.turn(number).arguments
        put.extend(range(first, first + batch))
    assert put == list(range(100_000 + 3 * 64))


def test_turns_of_a_shape_bring_new_ids() -> None:
    (contest,) = (c for c in measurements([TINY], PLAN) if c.shape == "tiny")
    labels = [contest.turn(number).arguments[1] for number in range(4)]
    assert len(set(labels)) == 4


def test_summary_is_of_the_sample() -> None:
    summary = summarize([4.0, 1.0, 3.0, 2.0, 5.0])
    assert summary.n == 5
    assert (summary.min, summary.p25, summary.median, summary.p75, summary.max) == (1, 2, 3, 4, 5)
    assert summary.p99 == pytest.approx(4.96)
    with pytest.raises(ValueError, match="nothing"):
        summarize([])


def test_a_refusal_takes_the_place_of_figures() -> None:
    tally = Aggregator()
    put, get = operation_key("tiny", "put"), operation_key("tiny", "get")
    for target in ("fast", "wrong"):
        tally.add(target, put, [1.0, 2.0, 3.0])
        tally.add(target, get, [4.0])
    tally.refuse("wrong", [get], "other rows")
    tally.copies["tiny"] += [(0.25, 0.5), (0.75, 1.5)]
    tables = tally.tables(["fast", "wrong"], [TINY], PLAN)
    rows = [(r.target, r.operation, r.seconds and r.seconds.median, r.refused)
            for r in tables["operations"]]  # fmt: skip
    assert rows == [
        ("fast", "put", 2.0, ""),
        ("wrong", "put", 2.0, ""),
        ("fast", "get", 4.0, ""),
        ("wrong", "get", None, "other rows"),
    ]
    (copy,) = tables["memcpy"]
    assert (copy.warm.median, copy.fresh.median) == (0.5, 1.0)
    assert tables["growth"] == tables["wake"] == tables["claim_rate"] == []


def test_a_document_survives_its_file() -> None:
    tally = Aggregator()
    tally.add("memory", claim_rate_key(2), [10.0, 20.0])
    tally.add("memory", growth_key("put", 1_000), [0.1])
    tally.add("memory", wake_key("from_start"), [0.2])
    tally.add("memory", wake_key("from_return"), [-0.1])
    host = Host(cpu="c", cores=2, memory_gib=1.5, system="s", versions={}, load_at_start=0.1)
    document = BenchDocument(
        kit="0",
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        quick=True,
        complete=False,
        notes=["interrupted"],
        host=host,
        targets=[],
        **tally.tables(["memory"], [], PLAN),
    )
    text = document.to_json()
    assert BenchDocument.model_validate_json(text) == document
    assert '"schema": 1' in text
    assert document.wake[0].from_return is not None
    assert document.wake[0].from_return.median == -0.1

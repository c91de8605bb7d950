"""A run's measurements, and the document made from their figures."""

from __future__ import annotations

from typing import Any

import pytest

from rlconform.bench.aggregate import Aggregator, summarize
from rlconform.bench.document import GROWTH_OPERATIONS, OPERATIONS, BenchDocument, Host
from rlconform.bench.measurement_requests import CHUNK, FigureKey, measurements
from rlconform.bench.plan import load_plan, load_shape

TINY, PLAN = load_shape("tiny"), load_plan(quick=True)


PLANNED = measurements([TINY, load_shape("vlm")], PLAN)
KEYS = [key for measurement in PLANNED for key in measurement.keys.values()]


def key(table: str, column: str = "seconds", **row: str | int) -> FigureKey:
    """The planned key whose row has these values."""
    (found,) = (
        key
        for key in KEYS
        if (key.table, key.column) == (table, column) and row.items() <= dict(key.row).items()
    )
    return found


def test_each_figure_is_planned_once() -> None:
    assert len(KEYS) == len(set(KEYS))
    assert set(KEYS) == {
        *(key("operations", shape=shape, operation=name)
          for shape in ("tiny", "vlm") for name in OPERATIONS),
        *(key("claim_rate", "rows_per_second", consumers=count) for count in (1, 2, 4)),
        *(key("growth", operation=name, rows_in_partition=rows)
          for name in GROWTH_OPERATIONS for rows in (1_000, 10_000)),
        *(key("wake", since) for since in ("from_start", "from_return")),
    }  # fmt: skip


def test_a_partition_is_filled_once_and_then_slides() -> None:
    (measurement,) = (
        c for c in measurements([], load_plan(quick=False)) if c.title == "100,000 rows"
    )
    put: list[int] = []
    for request in measurement.prepare:
        _, first, count, rows = request.arguments
        assert count <= CHUNK
        assert rows == 100_000
        put.extend(range(first, first + count))
    for number in range(3):
        _, first, batch = measurement.turn(number).arguments
        put.extend(range(first, first + batch))
    assert put == list(range(100_000 + 3 * 64))


def test_each_turn_of_a_shape_has_new_ids() -> None:
    (measurement,) = (c for c in measurements([TINY], PLAN) if c.shape == "tiny")
    labels = [measurement.turn(number).arguments[1] for number in range(4)]
    assert len(set(labels)) == 4


def test_summary_is_of_the_sample() -> None:
    summary = summarize([4.0, 1.0, 3.0, 2.0, 5.0])
    assert summary.n == 5
    assert (summary.min, summary.p25, summary.median, summary.p75, summary.max) == (1, 2, 3, 4, 5)
    assert summary.p99 == pytest.approx(4.96)
    with pytest.raises(ValueError, match="nothing"):
        summarize([])


def test_a_refusal_takes_the_place_of_figures() -> None:
    aggregator = Aggregator()
    put, get = (key("operations", shape="tiny", operation=name) for name in ("put", "get"))
    for target in ("fast", "wrong"):
        aggregator.add(target, put, [1.0, 2.0, 3.0])
        aggregator.add(target, get, [4.0])
    aggregator.refuse("wrong", [get], "other rows")
    aggregator.copies["tiny"] += [(0.25, 0.5), (0.75, 1.5)]
    tables = aggregator.tables(["fast", "wrong"], KEYS)
    rows = [(r["target"], r["operation"], r["seconds"] and r["seconds"].median, r["refused"])
            for r in tables["operations"]]  # fmt: skip
    assert rows == [
        ("fast", "put", 2.0, ""),
        ("wrong", "put", 2.0, ""),
        ("fast", "get", 4.0, ""),
        ("wrong", "get", None, "other rows"),
    ]
    (copy,) = aggregator.memcpy()
    assert (copy.warm.median, copy.fresh.median) == (0.5, 1.0)
    assert tables["growth"] == tables["wake"] == tables["claim_rate"] == []


def test_a_document_can_be_read_back() -> None:
    aggregator = Aggregator()
    aggregator.add("memory", key("claim_rate", "rows_per_second", consumers=2), [10.0, 20.0])
    aggregator.add("memory", key("growth", operation="put", rows_in_partition=1_000), [0.1])
    aggregator.add("memory", key("wake", "from_start"), [0.2])
    aggregator.add("memory", key("wake", "from_return"), [-0.1])
    host = Host(cpu="c", cores=2, memory_gib=1.5, system="s", versions={}, load_at_start=0.1)
    tables: dict[str, Any] = dict(aggregator.tables(["memory"], KEYS))
    document = BenchDocument(
        kit="0",
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        quick=True,
        complete=False,
        notes=["interrupted"],
        host=host,
        targets=[],
        shapes=[],
        memcpy=[],
        **tables,
    )
    text = document.to_json()
    assert BenchDocument.model_validate_json(text) == document
    assert '"schema": 1' in text
    assert document.wake[0].from_return is not None
    assert document.wake[0].from_return.median == -0.1

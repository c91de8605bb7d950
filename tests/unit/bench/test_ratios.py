"""Ratios: which figures are divided, and the bounds of the result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlconform._resources import resource_dir
from rlconform.bench.document import BenchDocument, Summary
from rlconform.bench.report.ratios import (
    Ratio,
    against_memcpy,
    between_targets,
    growth_ratios,
    over,
    scaling_ratios,
)


@pytest.fixture
def document() -> BenchDocument:
    text = (resource_dir("fixtures") / "bench" / "bench.json").read_text("utf-8")
    return BenchDocument.model_validate_json(text)


def summary(p25: float, median: float, p75: float) -> Summary:
    return Summary(n=5, median=median, p25=p25, p75=p75, p99=p75, min=p25, max=p75)


def seconds(document: BenchDocument, target: str, shape: str, operation: str) -> Summary:
    found = [
        row.seconds
        for row in document.operations
        if (row.target, row.shape, row.operation) == (target, shape, operation)
    ]
    assert len(found) == 1
    assert found[0] is not None
    return found[0]


def test_bounds_compare_the_quartiles() -> None:
    assert over(summary(8, 10, 12), summary(1, 2, 4)) == Ratio(5, 2, 12)


@pytest.mark.parametrize("below", [summary(0, 1, 2), summary(-1, 1, 2)])
def test_no_ratio_where_no_time_passed(below: Summary) -> None:
    assert over(summary(1, 2, 3), below) is None
    assert over(below, summary(1, 2, 3)) is None


quartiles = st.lists(st.floats(1e-9, 1e6), min_size=3, max_size=3).map(
    lambda values: summary(*sorted(values))
)


@given(quartiles, quartiles)
def test_a_ratio_is_within_its_bounds_and_can_be_inverted(above: Summary, below: Summary) -> None:
    ratio, turned = over(above, below), over(below, above)
    assert ratio is not None
    assert turned is not None
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.value * turned.value == pytest.approx(1)
    assert ratio.low * turned.high == pytest.approx(1)


def test_memcpy_ratios_are_against_touched_memory(document: BenchDocument) -> None:
    found = against_memcpy(document)["acme/shm", "llama8b", "put"]
    copy = next(copy for copy in document.memcpy if copy.shape == "llama8b")
    put = seconds(document, "acme/shm", "llama8b", "put")
    assert found.value == put.median / copy.warm.median


def test_every_measured_operation_has_its_memcpy_ratio(document: BenchDocument) -> None:
    measured = [(r.target, r.shape, r.operation) for r in document.operations if r.seconds]
    found = list(against_memcpy(document))
    assert found == measured
    assert ("globex/store", "qwen30b-r3", "put") not in found  # refused


def test_a_comparison_is_slow_time_over_fast_time(document: BenchDocument) -> None:
    found = {
        (target, other): ratio.value
        for (target, other, *where), ratio in between_targets(document).items()
        if where == ["llama8b", "get"]
    }
    fast = seconds(document, "acme/shm", "llama8b", "get").median
    slow = seconds(document, "globex/store", "llama8b", "get").median
    assert fast < slow
    assert found["acme/shm", "globex/store"] == slow / fast
    assert found["globex/store", "acme/shm"] == fast / slow


def test_targets_are_compared_only_where_both_were_measured(document: BenchDocument) -> None:
    met = {(target, other, shape) for target, other, shape, _ in between_targets(document)}
    assert not any("globex/store" in pair for *pair, shape in met if shape == "qwen30b-r3")
    assert not any("umbrella/grid" in pair for *pair, shape in met if shape == "llama8b")
    assert all(one != other for one, other, _ in met)


def test_growth_spans_the_partitions_that_were_measured(document: BenchDocument) -> None:
    spans = {
        (target, operation): (fewest, most)
        for target, operation, fewest, most in growth_ratios(document)
    }
    assert spans["acme/shm", "claim"] == (1_000, 100_000)
    assert spans["globex/store", "put"] == (1_000, 10_000)  # the largest one was refused


def test_growth_is_the_fullest_over_the_emptiest(document: BenchDocument) -> None:
    turned = document.model_copy(update={"growth": document.growth[::-1]})
    found = {key[:2]: ratio.value for key, ratio in growth_ratios(turned).items()}
    assert found["globex/store", "claim"] > 3
    assert 0.9 < found["memory", "claim"] < 1.1


def test_one_size_of_partition_is_no_growth(document: BenchDocument) -> None:
    rows = [row for row in document.growth if row.rows_in_partition == 1_000]
    assert growth_ratios(document.model_copy(update={"growth": rows})) == {}


def test_scaling_is_over_one_consumer(document: BenchDocument) -> None:
    rates = {
        (row.target, row.consumers): row.rows_per_second.median
        for row in document.claim_rate
        if row.rows_per_second
    }
    found = scaling_ratios(document)
    assert found["acme/shm", 4].value == rates["acme/shm", 4] / rates["acme/shm", 1]
    assert {consumers for _, consumers in found} == {2, 4}


def test_no_scaling_without_the_single_consumer(document: BenchDocument) -> None:
    rows = [row for row in document.claim_rate if row.consumers > 1]
    assert scaling_ratios(document.model_copy(update={"claim_rate": rows})) == {}

"""GET: a plane reads any rows and fields in any order."""

from __future__ import annotations

from hypothesis import strategies as st

from rlconform.certify.assertions.expect import expect_column, expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.column_strategies import (
    columns,
)
from rlconform.certify.properties.runner import for_all
from rlconform.certify.properties.strategies import (
    Batch,
    batches,
    selections,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest


@requirement("GET-01")
@for_all(
    halves=st.permutations([f"r{i}" for i in range(6)]),
    asked=selections([f"r{i}" for i in range(6)]),
)
def test_rows_are_returned_in_any_order_asked(
    part: PartitionUnderTest, halves: list[str], asked: list[str]
) -> None:
    part.put_labeled(halves[:3])
    part.put_labeled(halves[3:])
    part.expect_labeled(asked)


@requirement("GET-03")
@for_all(batch=batches(columns, min_columns=2))
def test_each_field_is_read_alone(part: PartitionUnderTest, batch: Batch) -> None:
    part.put(batch.ids, **batch.values)
    for name, rows in batch.rows.items():
        result = part.get(batch.ids, name)
        expect_equal(sorted(map(str, result.keys())), [name], "fields of the result")
        expect_column(result, name, rows)

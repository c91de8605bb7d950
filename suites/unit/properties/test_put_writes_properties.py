"""PUT: columns and rows keep their names and values in any order of puts."""

from __future__ import annotations

from hypothesis import strategies as st

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.runner import for_all
from rlconform.certify.properties.strategies import (
    PartialWrite,
    partial_writes,
    sample_ids,
    selections,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids, expect_unreadable

IDS = ["r0", "r1", "r2"]

FIELDS = ["x", "y", "z"]


@requirement("PUT-11")
@for_all(
    fields=selections(FIELDS),
    orders=st.lists(st.permutations(IDS), min_size=3, max_size=3),
)
def test_columns_are_appended_in_any_order(
    part: PartitionUnderTest, fields: list[str], orders: list[list[str]]
) -> None:
    for field, order in zip(fields, orders, strict=False):
        part.put_labeled(order, field)
    part.expect_labeled(IDS, *fields)


@requirement("PUT-12")
@for_all(writes=partial_writes(IDS, FIELDS))
def test_only_what_was_put_is_produced(
    part: PartitionUnderTest, writes: list[PartialWrite]
) -> None:
    produced: dict[str, set[str]] = {field: set() for field in FIELDS}
    for ids, fields in writes:
        new = [i for i in ids if not any(i in produced[field] for field in fields)]
        if new:
            part.put_labeled(new, *fields)
        for field in fields:
            produced[field].update(new)
    for field, put in produced.items():
        if put:
            part.expect_labeled(sorted(put), field)
        for sample_id in sorted(set(IDS) - put)[:1]:
            expect_unreadable(lambda f=field, i=sample_id: part.get([i], f), sample_id, field)
    expect_ids(part.claim("train", ["x"]), sorted(produced["x"]), "rows with x")
    both = sorted(produced["y"] & produced["z"])
    expect_ids(part.claim("prev_lp", ["y", "z"]), both, "rows with y and z")


@requirement("PUT-20")
@for_all(ids=sample_ids(min_size=2))
def test_any_ids_are_distinct(part: PartitionUnderTest, ids: list[str]) -> None:
    part.put_labeled(ids)
    part.expect_labeled(ids[::-1])
    for sample_id in ids:
        part.expect_labeled([sample_id])
    part.clear(ids[-1:])
    part.expect_labeled(ids[:-1])
    expect_ids(part.claim("train"), ids[:-1], "ids handed to a task")

"""PUT, GET, TAG: ids are names and nothing else; rows, columns and tags stay with theirs."""

from __future__ import annotations

from hypothesis import strategies as st

from rlconform.certify.assertions.values import expect, same_object
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.runner import for_all
from rlconform.certify.properties.strategies import (
    PartialWrite,
    partial_writes,
    sample_ids,
    selections,
    tags,
)
from rlconform.certify.scenarios.meta_values import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids, expect_unreadable
from rlconform.contract import Tags

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
    for write in writes:
        new = [i for i in write.ids if not any(i in produced[field] for field in write.fields)]
        if new:
            part.put_labeled(new, *write.fields)
        for field in write.fields:
            produced[field].update(new)
    for field, ids in produced.items():
        if ids:
            part.expect_labeled(sorted(ids), field)
        for sample_id in sorted(set(IDS) - ids)[:1]:
            expect_unreadable(lambda f=field, i=sample_id: part.get([i], f), sample_id, field)
    expect_ids(part.claim("train", ["x"]), sorted(produced["x"]), "rows with x")
    both = sorted(produced["y"] & produced["z"])
    expect_ids(part.claim("prev_lp", ["y", "z"]), both, "rows with y and z")


@requirement("PUT-20")
@for_all(ids=sample_ids(min_size=2))
def test_any_ids_are_told_apart(part: PartitionUnderTest, ids: list[str]) -> None:
    part.put_labeled(ids)
    part.expect_labeled(ids[::-1])
    for sample_id in ids:
        part.expect_labeled([sample_id])
    part.clear(ids[-1:])
    part.expect_labeled(ids[:-1])
    expect_ids(part.claim("train"), ids[:-1], "ids handed to a task")


@requirement("GET-01")
@for_all(
    halves=st.permutations([f"r{i}" for i in range(6)]),
    asked=selections([f"r{i}" for i in range(6)]),
)
def test_rows_come_in_any_order_asked(
    part: PartitionUnderTest, halves: list[str], asked: list[str]
) -> None:
    part.put_labeled(halves[:3])
    part.put_labeled(halves[3:])
    part.expect_labeled(asked)


def put_tags(part: PartitionUnderTest, rows: list[Tags]) -> list[str]:
    """Rows with these tags; their ids."""
    ids = IDS[: len(rows)]
    part.put_labeled(ids, tags=rows)
    return ids


def expect_tags(part: PartitionUnderTest, due: dict[str, Tags]) -> None:
    """A claim hands out these rows with these tags, of the same types."""
    came = tags_by_id(part.claim("train"))
    expect(came.keys() == due.keys(), f"rows {sorted(due)} with tags", sorted(came))
    for sample_id, row in due.items():
        expect(same_object(came[sample_id], row), f"{sample_id} to carry {row!r}", came[sample_id])


@requirement("TAG-01")
@for_all(rows=st.lists(tags(), min_size=1, max_size=3))
def test_any_tags_come_with_their_row(part: PartitionUnderTest, rows: list[Tags]) -> None:
    ids = put_tags(part, rows)
    expect_tags(part, dict(zip(ids, rows, strict=True)))


@requirement("TAG-03")
@for_all(
    rows=st.lists(st.tuples(tags(), tags()), min_size=1, max_size=3), with_fields=st.booleans()
)
def test_any_tags_are_merged_key_by_key(
    part: PartitionUnderTest, rows: list[tuple[Tags, Tags]], with_fields: bool
) -> None:
    ids = put_tags(part, [old for old, _ in rows])
    new = [new for _, new in rows]
    if with_fields:
        part.put_labeled(ids, "y", tags=new)
    else:
        part.put(ids, new)
    expect_tags(part, {i: old | new for i, (old, new) in zip(ids, rows, strict=True)})

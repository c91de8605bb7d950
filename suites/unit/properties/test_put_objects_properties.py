"""PUT: any object column, with or without tensors in the put, is read exactly or refused."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rlconform.certify.assertions.expect import expect_column, expect_objects, leaning_on
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.runner import for_all
from rlconform.certify.properties.strategies import (
    Batch,
    mixed_batches,
    object_overwrites,
    objects,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import put_unless_refused
from rlconform.contract import Target

IDS = ["r0", "r1", "r2"]


@requirement("PUT-21")
@for_all(values=st.lists(objects(), min_size=1, max_size=3))
def test_any_objects_come_back_or_are_refused(
    part: PartitionUnderTest, target: Target, values: list[Any]
) -> None:
    ids = IDS[: len(values)]
    if put_unless_refused(part, target, ids, log=values):
        expect_objects(part.get(ids[::-1], "log"), "log", values[::-1])
    else:
        with leaning_on("PUT-16"):
            part.expect_absent(ids, "log")


@requirement("PUT-21")
@for_all(mixed=mixed_batches())
def test_any_objects_beside_tensors_come_back_or_are_refused(
    part: PartitionUnderTest, target: Target, mixed: tuple[Batch, list[Any]]
) -> None:
    batch, values = mixed
    if not put_unless_refused(part, target, batch.ids, **batch.values, log=values):
        with leaning_on("PUT-16"):
            for field in (*batch.columns, "log"):
                part.expect_absent(batch.ids, field)
        return
    result = part.get(batch.ids[::-1], *batch.columns, "log")
    expect_objects(result, "log", values[::-1])
    for name, rows in batch.rows.items():
        expect_column(result, name, rows[::-1])
    part.expect_rows(batch.ids, **batch.rows)
    expect_objects(part.get(batch.ids, "log"), "log", values)


@requirement("PUT-13")
@for_all(writes=object_overwrites(IDS))
def test_the_newest_of_any_objects_is_read(
    part: PartitionUnderTest, target: Target, writes: list[dict[str, Any]]
) -> None:
    """A put that the plane refuses leaves the previous values unchanged."""
    newest: dict[str, Any] = {}
    for write in writes:
        if put_unless_refused(part, target, list(write), log=list(write.values())):
            newest |= write
        if newest:
            expect_objects(part.get(list(newest), "log"), "log", list(newest.values()))

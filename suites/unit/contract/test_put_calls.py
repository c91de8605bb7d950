"""PUT-11, 14, 16: puts of old and new rows, of very many rows, and puts that fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import expect, expect_equal, is_rejected, leaning_on
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_step import STEP_IDS
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    batch_of,
    expect_ids,
    expect_unreadable,
)

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("PUT-11", leans_on=("PUT-12",))
@pytest.mark.parametrize("first", ["new", "old"])
def test_a_put_of_old_and_new_rows_keeps_what_the_old_ones_have(
    part: PartitionUnderTest, first: str
) -> None:
    """Planes that create or extend all rows of a put decide by one of them which it is."""
    old, new = ["old0", "old1"], ["new0", "new1"]
    part.put_labeled(old, "x", tags=[{"n": n} for n, _ in enumerate(old)])
    mixed = ["new0", "old1", "new1", "old0"]
    part.put_labeled(mixed if first == "new" else mixed[::-1], "y")
    part.expect_labeled(mixed, "y")
    part.expect_labeled(old, "x", "y")
    for sample_id in new:
        expect_unreadable(lambda i=sample_id: part.get([i], "x"), sample_id, "x")
    both = part.claim("train", ["x", "y"])
    expect_ids(both, old, "rows that have both fields")
    with leaning_on("TAG-02"):
        expect_equal(tags_by_id(both), {i: {"n": n} for n, i in enumerate(old)}, "tags")
    expect_ids(part.claim("prev_lp", ["y"]), mixed, "rows that have the field of the second put")


@requirement("PUT-14")
def test_the_receipt_of_a_large_put_names_every_row(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    ids = STEP_IDS[5000::-1]
    part = new_partition(num_samples=len(ids))
    numbers = torch.arange(len(ids))
    tags = [{"input_lengths": n} for n, _ in enumerate(ids)]
    receipt = part.put(ids, tags, x=numbers, y=numbers)
    named = list(receipt.sample_ids)
    expect_equal(len(named), len(ids), "number of sample_ids on the receipt")
    wrong = [n for n, (one, other) in enumerate(zip(named, ids, strict=True)) if one != other]
    got = f"another at {len(wrong)} places, first {named[wrong[0]]!r}" if wrong else ""
    expect(not wrong, f"the {len(ids)} ids on the receipt, in the order given", got)
    expect_equal(sorted(receipt.fields or []), ["x", "y"], "fields on the receipt")


def put_beside_a_nested_leaf(part: PartitionUnderTest, ids: list[str], column: Any) -> object:
    """Put the column with a leaf that is none, which planes refuse (PUT-25)."""
    batch = batch_of({"x": column}, len(ids))
    batch["y"] = TensorDict({"deep": torch.zeros(len(ids))}, batch_size=[len(ids)])
    return part.put_batch(ids, batch)


#: Puts of a column that fail, if only for another reason than its dtype.
FAILING: dict[str, Callable[[PartitionUnderTest, list[str], Any], object]] = {
    "nested_leaf": put_beside_a_nested_leaf,
    "too_few_rows": lambda part, ids, column: part.put_batch(ids, batch_of({"x": column[:1]}, 1)),
    "too_few_tags": lambda part, ids, column: part.put(ids, [{"v": 1}], x=column),
}


def put_in_another_dtype(part: PartitionUnderTest, ids: list[str], column: Any) -> object:
    """Put the column in another dtype, which planes may refuse (PUT-23)."""
    return part.put(ids, x=column.half())


#: Puts that fail, for another dtype too where a plane refuses it.
UNDONE = FAILING | {"another_dtype": put_in_another_dtype}


@requirement("PUT-16")
@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
def test_the_dtype_of_a_put_that_fails_is_not_kept(
    part: PartitionUnderTest, failing: Callable[[PartitionUnderTest, list[str], Any], object]
) -> None:
    """Planes that note the dtypes of a put before they check it refuse what comes after it."""
    if is_rejected(lambda: failing(part, IDS, torch.ones(3))):  # PUT-15, PUT-25: whether it must be
        part.put(IDS, x=torch.arange(3))
        part.expect_rows(IDS, x=list(torch.arange(3)))
        expect_ids(part.claim("train"), IDS, "rows of the put after the one that failed")


@requirement("PUT-16", leans_on=("TAG-02", "PUT-17"))
@pytest.mark.parametrize("failing", UNDONE.values(), ids=UNDONE)
def test_rows_of_tags_alone_outlive_a_put_that_fails(
    part: PartitionUnderTest, failing: Callable[[PartitionUnderTest, list[str], Any], object]
) -> None:
    """Planes that undo a put by deleting its rows without fields take older rows for new ones."""
    part.put(["other"], x=torch.arange(1))
    tags = {sample_id: {"version": n} for n, sample_id in enumerate(IDS)}
    part.put(IDS, list(tags.values()))
    if is_rejected(lambda: failing(part, IDS, torch.arange(3))):
        part.put(IDS, x=torch.arange(3))
        claimed = tags_by_id(part.claim("train"))
        expect_equal({i: claimed.get(i) for i in IDS}, tags, "tags put before a put that failed")


@requirement("PUT-16")
def test_a_dtype_that_was_refused_does_not_replace_that_of_the_rows(
    part: PartitionUnderTest,
) -> None:
    part.put(IDS[:1], x=torch.arange(1))
    if is_rejected(lambda: part.put(IDS[1:], x=torch.ones(2))):  # PUT-23: whether it may be
        part.put(IDS[1:], x=torch.arange(1, 3))
        part.expect_rows(IDS, x=list(torch.arange(3)))


@requirement("PUT-16")
@pytest.mark.parametrize("new", ["a", "z"], ids=["before_the_refused", "after_the_refused"])
def test_a_new_field_beside_a_refused_one_may_have_another_dtype_later(
    part: PartitionUnderTest, new: str
) -> None:
    """Planes that make the columns of a put one by one keep those before the one they refuse."""
    part.put(IDS[:1], x=torch.arange(1))
    both = {new: torch.ones(2), "x": torch.ones(2)}
    if is_rejected(lambda: part.put(IDS[1:], **both)):  # PUT-23: whether it may be
        later = {new: torch.arange(2), "x": torch.arange(1, 3)}
        part.put(IDS[1:], **later)
        part.expect_rows(IDS[1:], **{name: list(column) for name, column in later.items()})


@requirement("PUT-17", leans_on=("TAG-02",))
@pytest.mark.parametrize("order", [["old", "new"], ["new", "old"]], ids="_first_".join)
def test_tags_alone_of_old_and_new_rows_are_kept(
    part: PartitionUnderTest, order: list[str]
) -> None:
    """Planes that add tags to rows, or create rows, decide by the first row which it is."""
    part.put_labeled(["old"])
    part.put(order, [{"from": sample_id} for sample_id in order])
    part.put_labeled(["new"])
    due = {sample_id: {"from": sample_id} for sample_id in order}
    expect_equal(tags_by_id(part.claim("train")), due, "tags that were put alone")

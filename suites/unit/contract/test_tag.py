"""TAG: rows have tags, primitive values by which a consumer filters without reading the rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from rlconform.certify.assertions.expect import (
    expect,
    expect_equal,
    is_rejected,
    leaning_on,
    same_object,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.consumers import expect_waiting
from rlconform.certify.scenarios.labeled_rows import labeled_column
from rlconform.certify.scenarios.large_step import STEP_IDS, first_wrong
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("TAG-01")
def test_each_row_is_claimed_with_its_own_tags(part: PartitionUnderTest) -> None:
    tags = {
        "u0_g0": {"int": 3, "float": 0.5, "str": "ü", "true": True, "none": None},
        "u0_g1": {"int": -(2**53) - 1, "float": 1e-300, "str": "", "true": False, "none": None},
        "u1_g0": {"int": 0, "float": -0.0, "str": "x" * 300, "true": True, "none": None},
    }
    part.put_labeled(IDS[::-1], tags=[tags[i] for i in IDS[::-1]])
    got = tags_by_id(part.claim("train"))
    expect_equal(sorted(got), sorted(IDS), "rows with tags")
    for sample_id in IDS:
        expect(
            same_object(got[sample_id], tags[sample_id]),
            f"{sample_id} to carry {tags[sample_id]}",
            got[sample_id],
        )


#: Tags of three rows in one put; a claim must return them unchanged.
UNLIKE_TAGS: dict[str, list[dict[str, Any]]] = {
    "numbers_of_both_kinds": [{"reward": 1}, {"reward": 0.5}, {"reward": True}],
    "equal_numbers_of_unlike_types": [{"reward": 1}, {"reward": 1.0}, {"reward": True}],
    "std_of_one": [{"std": math.nan}, {"std": math.inf}, {"std": 0.0}],
    "long_text": [{"prompt": "p" * 10_000}, {"prompt": ""}, {"prompt": "ü" * 10_000}],
    "large_numbers": [{"seed": 2**63 - 1}, {"seed": -(2**63)}, {"seed": 2**53 + 1}],
    "texts_that_collate": [{"mode": "Eval"}, {"mode": "eval"}, {"mode": "eval "}],
    "keys_that_collate": [{"Mode": 1}, {"mode": 1}, {"mode ": 1}],
    "numbers_and_text": [{"answer": 7}, {"answer": "7"}, {"answer": None}],
}


#: What is put before the tags: nothing, rows without tags, or rows with other tags of these keys.
BEFORE = ("nothing", "untagged", "others")


@requirement("TAG-01")
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("puts", [1, 3], ids=["at_once", "row_by_row"])
@pytest.mark.parametrize("tags", UNLIKE_TAGS.values(), ids=UNLIKE_TAGS)
def test_tags_of_one_key_keep_their_own_types(
    part: PartitionUnderTest, tags: list[dict[str, Any]], puts: int, before: str
) -> None:
    if before == "untagged":
        part.put_labeled(IDS)
    elif before == "others":
        part.put_labeled(IDS, tags=[dict.fromkeys(row, "other") for row in tags])
    size = len(IDS) // puts
    for start in range(0, len(IDS), size):
        ids, own = IDS[start : start + size], tags[start : start + size]
        if before == "nothing":
            part.put_labeled(ids, tags=own)
        else:
            part.put(ids, own)
    got = tags_by_id(part.claim("train"))
    for sample_id, row in zip(IDS, tags, strict=True):
        expect(
            same_object(got.get(sample_id), row),
            shorten(f"{sample_id} to carry {row}"),
            shorten(repr(got.get(sample_id))),
        )


@requirement("TAG-01")
def test_rows_put_with_the_same_tags_are_tagged_independently(part: PartitionUnderTest) -> None:
    old, new = {"weight_version": 1}, {"weight_version": 2, "std": 0.5}
    part.put_labeled(IDS, tags=[old] * len(IDS))
    part.put(IDS[:1], [new])
    expected = {i: dict(old) for i in IDS} | {IDS[0]: new}
    expect_equal(
        tags_by_id(part.claim("train")), expected, "tags after a put of tags on one row of three"
    )


@requirement("TAG-01")
def test_rows_put_with_equal_tags_are_tagged_independently(part: PartitionUnderTest) -> None:
    for sample_id in IDS:
        part.put_labeled([sample_id], tags=[{"weight_version": 1}])
    part.put(IDS[1:2], [{"std": 0.5}])
    expected = {i: {"weight_version": 1} for i in IDS} | {IDS[1]: {"weight_version": 1, "std": 0.5}}
    expect_equal(tags_by_id(part.claim("train")), expected, "tags after a stamp on one row")


@requirement("TAG-01")
def test_rows_with_and_without_tags_are_told_apart(part: PartitionUnderTest) -> None:
    tags = {IDS[0]: {}, IDS[1]: {"weight_version": 7}, IDS[2]: {}}
    part.put_labeled(IDS, tags=list(tags.values()))
    expect_equal(tags_by_id(part.claim("train")), tags, "tags where only one row has any")


@requirement("TAG-01")
def test_a_claim_that_waited_returns_tags_and_lengths(part: PartitionUnderTest) -> None:
    tags = {i: {"weight_version": n, "input_lengths": 5 + n} for n, i in enumerate(IDS[:3])}
    waiting = BackgroundCall(lambda: part.claim(batch_size=3, blocking=True), "the blocked claim")
    part.put_labeled(IDS[:2], tags=[tags[i] for i in IDS[:2]])
    expect_waiting(waiting, part, "a third row", "an answer without it")
    part.put_labeled(IDS[2:3], tags=[tags[IDS[2]]])
    woken = waiting.result(part.timeouts.settle)
    expect_equal(tags_by_id(woken), tags, "tags of the woken claim")
    lengths = dict(zip(woken.sample_ids, woken.sequence_lengths or [], strict=False))
    expect_equal(
        lengths, {i: tags[i]["input_lengths"] for i in tags}, "sequence_lengths of the woken claim"
    )


@requirement("TAG-01")
def test_a_claim_returns_tags_put_after_an_earlier_claim(part: PartitionUnderTest) -> None:
    """Planes that claim rows ahead for the next claim may do so with their tags."""
    part.put_labeled(IDS, tags=[{"weight_version": 1}] * len(IDS))
    part.claim(batch_size=1)
    part.put(IDS, [{"weight_version": 2}] * len(IDS))
    got = tags_by_id(part.claim("train"))
    newest = {sample_id: {"weight_version": 2} for sample_id in got}
    expect_equal(got, newest, "tags put after an earlier claim")


@requirement("TAG-02")
def test_a_put_without_tags_keeps_the_old_ones(part: PartitionUnderTest) -> None:
    tags = {i: {"weight_version": n} for n, i in enumerate(IDS)}
    part.put_labeled(IDS, "x", tags=list(tags.values()))
    part.put_labeled(IDS, "y")
    part.put_labeled(IDS, "x", version=1)
    expect_equal(tags_by_id(part.claim("train", ["x", "y"])), tags, "tags after write-backs")


@requirement("TAG-03")
@pytest.mark.parametrize("fields", [[], ["y"]], ids=["alone", "with_a_field"])
def test_tags_of_a_second_put_are_merged(part: PartitionUnderTest, fields: list[str]) -> None:
    part.put_labeled(IDS, tags=[{"a": i, "b": i} for i in IDS])
    columns = {field: labeled_column(part.id, IDS[::-1], field) for field in fields}
    part.put(IDS[::-1], [{"b": f"new {i}", "c": i} for i in IDS[::-1]], **columns)
    merged = {i: {"a": i, "b": f"new {i}", "c": i} for i in IDS}
    expect_equal(tags_by_id(part.claim("train")), merged, "merged tags")


@requirement("TAG-05")
def test_clear_drops_the_tags(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, tags=[{"weight_version": 1}] * 3)
    part.clear(IDS)
    part.put_labeled(IDS[:1])
    part.put_labeled(IDS[1:], tags=[{"fresh": True}] * 2)
    meta = part.claim("train")
    got = tags_by_id(meta)
    expect_equal(
        {i: got.get(i, {}) for i in IDS},
        {IDS[0]: {}, IDS[1]: {"fresh": True}, IDS[2]: {"fresh": True}},
        "tags after the clear",
    )


@requirement("TAG-01")
def test_rows_of_a_large_step_have_their_own_tags(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(num_samples=len(STEP_IDS))
    tags = {sample_id: {"n": n} for n, sample_id in enumerate(STEP_IDS)}
    part.put(STEP_IDS, list(tags.values()), x=torch.arange(len(STEP_IDS)))
    got = tags_by_id(part.claim(batch_size=len(STEP_IDS)))
    wrong = [i for i in STEP_IDS if got.get(i) != tags[i]]
    expect(not wrong, f"its own tags on each of {len(STEP_IDS)} rows", first_wrong(wrong, got))


@requirement("TAG-01")
def test_a_row_may_have_many_tags(part: PartitionUnderTest) -> None:
    tags = {i: {f"tag_{n}": f"{i} {n}" for n in range(40)} for i in IDS}
    part.put_labeled(IDS, tags=list(tags.values()))
    expect_equal(tags_by_id(part.claim("train")), tags, "tags of rows with 40 each")


#: Tag values that programs compute, and that a plane may refuse.
OTHER_TAGS: dict[str, Any] = {
    "numpy_float32": np.float32(0.5),
    "numpy_float64": np.float64(0.1),
    "numpy_int64": np.int64(2**53 + 1),
    "numpy_bool": np.bool_(True),
    "list": [1, 2],
    "dict": {"step": 1},
    "tensor": torch.tensor(2.5),
}


@requirement("TAG-08")
@pytest.mark.parametrize("value", OTHER_TAGS.values(), ids=OTHER_TAGS)
def test_a_tag_of_another_type_is_exact_or_refused(part: PartitionUnderTest, value: Any) -> None:
    tags = [{"std": value, "n": n} for n, _ in enumerate(IDS)]
    if is_rejected(lambda: part.put_labeled(IDS, tags=tags)):
        with leaning_on("PUT-16"):
            part.expect_absent(IDS)
        return
    got = tags_by_id(part.claim("train"))
    for n, sample_id in enumerate(IDS):
        row = got.get(sample_id, {})
        expect("std" in row, f"{sample_id} to keep its tag std={value!r}", row)
        same = not isinstance(row["std"], str) and bool(row["std"] == value)
        expect(same and row.get("n") == n, f"{sample_id} to carry std={value!r}, n={n}", row)


@requirement("TAG-08")
@pytest.mark.parametrize("value", [[1, [2]], {"step": [1]}], ids=["list", "dict"])
def test_changing_a_nested_tag_changes_nothing_stored(part: PartitionUnderTest, value: Any) -> None:
    given = [{"std": deepcopy(value)} for _ in IDS]
    if is_rejected(lambda: part.put_labeled(IDS, tags=given)):
        return
    for tags in given:
        inner: Any = tags["std"][1] if isinstance(value, list) else tags["std"]["step"]
        inner.append(9)
    got = tags_by_id(part.claim("train"))
    expect_equal(got, {i: {"std": value} for i in IDS}, "tags after the caller changed its own")


@requirement("TAG-05")
@pytest.mark.parametrize("by_none", [False, True], ids=["by_ids", "by_none"])
def test_clear_drops_the_tags_of_rows_without_fields(
    part: PartitionUnderTest, by_none: bool
) -> None:
    part.put(IDS, [{"std": 0.5}] * 3)
    part.clear(None if by_none else IDS)
    if by_none:
        part.register()  # clearing everything may end the registration
    part.put_labeled(IDS)
    got = {i: tags for i, tags in tags_by_id(part.claim("train")).items() if tags}
    expect_equal(got, {}, "tags of rows that were cleared before they had fields")


@requirement("TAG-01")
def test_tags_that_equal_the_old_ones_are_put(part: PartitionUnderTest) -> None:
    """Planes that skip tags without a difference compare with ``==``, for which 1 equals True."""
    old = {IDS[0]: {"v": 1, "w": 0.0}, IDS[1]: {"v": True, "w": 2}, IDS[2]: {"v": 0, "w": -0.0}}
    new = {
        IDS[0]: {"v": True, "w": -0.0},
        IDS[1]: {"v": 1.0, "w": 2.0},
        IDS[2]: {"v": False, "w": 0},
    }
    part.put_labeled(IDS, tags=[old[i] for i in IDS])
    part.put(IDS, [new[i] for i in IDS])
    got = tags_by_id(part.claim("train"))
    for sample_id in IDS:
        merged = {**old[sample_id], **new[sample_id]}
        same = same_object(got.get(sample_id), merged)
        expect(same, f"{merged} after a put of tags that equal the old ones", got.get(sample_id))

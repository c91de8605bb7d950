"""PUT: what put_samples does to the plane: columns appended, replaced, refused, and left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tensordict import TensorDict, tensorclass

from rlconform.certify.assertions.values import (
    ContractViolation,
    expect,
    expect_column,
    expect_equal,
    expect_rejection,
    expect_rows_but_first,
    is_rejected,
    leaning_on,
    overwrite_first,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.recording.text import shorten
from rlconform.certify.scenarios.labeled_rows import labeled_column
from rlconform.certify.scenarios.meta_values import tags_by_id
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    batch_of,
    expect_ids,
    expect_unreadable,
)
from rlconform.contract import BatchMeta

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("PUT-09")
def test_changing_the_callers_tensor_changes_nothing_stored(part: PartitionUnderTest) -> None:
    dense, values = labeled_column(part.id, IDS, "x"), torch.arange(6.0)
    rows = list(values.clone().split([1, 2, 3]))
    part.put(
        IDS, x=dense, y=torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 3, 6]))
    )
    dense.fill_(0)
    values.fill_(9)
    part.expect_labeled(IDS, "x")
    part.expect_rows(IDS, y=rows)


@requirement("PUT-09")
def test_changing_what_get_returned_changes_nothing_stored(part: PartitionUnderTest) -> None:
    rows = list(torch.arange(12.0).reshape(3, 4))
    part.put(IDS, x=torch.stack(rows))
    batch = part.get(IDS, "x")
    expect_column(batch, "x", rows)
    overwrite_first(batch, "x")
    part.expect_rows(IDS, x=rows)


@requirement("PUT-09")
def test_changing_what_get_data_returned_changes_nothing_stored(part: PartitionUnderTest) -> None:
    rows = list(torch.arange(12.0).reshape(3, 4))
    part.put(IDS, x=torch.stack(rows))
    meta = part.claim("train")
    mine = [rows[IDS.index(i)] for i in meta.sample_ids]
    overwrite_first(part.get_data(meta), "x")
    expect_column(part.get_data(meta), "x", mine)


@requirement("PUT-09")
def test_changing_jagged_rows_that_get_returned_changes_nothing_stored(
    part: PartitionUnderTest,
) -> None:
    rows = [torch.arange(n) for n in (2, 1, 3)]
    part.put(IDS, x=torch.nested.nested_tensor(rows, layout=torch.jagged))
    batch = part.get(IDS, "x")
    overwrite_first(batch, "x")
    expect_rows_but_first(batch, "x", rows)
    part.expect_rows(IDS, x=rows)


@requirement("PUT-09")
@pytest.mark.parametrize("way", ["with_rows", "alone"])
def test_changing_a_tag_dict_changes_nothing_stored(part: PartitionUnderTest, way: str) -> None:
    tags = [{"row": n} for n, _ in enumerate(IDS)]
    stored = {i: {"row": n} for n, i in enumerate(IDS)}
    if way == "alone":
        part.put_labeled(IDS)
        part.put(IDS, tags)
    else:
        part.put_labeled(IDS, tags=tags)
    for row in tags:
        row["row"] = 9
    came = tags_by_id(part.claim("train"))
    expect_equal(came, stored, "tags of the put")
    for row in came.values():
        row["row"] = 9
    expect_equal(tags_by_id(part.claim("prev_lp")), stored, "tags of the put")


@requirement("PUT-11")
def test_a_later_column_leaves_the_earlier_ones(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, "x")
    part.put_labeled(IDS[::-1], "y")
    part.expect_labeled(IDS, "x", "y")


@requirement("PUT-12")
def test_rows_without_a_field_stay_unproduced_for_it(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, "x")
    part.put_labeled(IDS[:1], "y")
    expect_ids(part.claim("train", ["x", "y"]), IDS[:1], "rows that have both fields")
    expect_unreadable(lambda: part.get(IDS[1:2], "y"), IDS[1], "y")
    part.put_labeled(IDS[1:], "y")
    expect_ids(part.claim("train", ["x", "y"]), IDS[1:], "rows that got the field later")
    part.expect_labeled(IDS, "x", "y")


@requirement("PUT-12")
def test_rows_may_lack_any_of_many_fields(new_partition: Callable[..., PartitionUnderTest]) -> None:
    fields = [f"f{n}" for n in range(70)]  # a machine word has bits for 64
    part = new_partition(fields=fields)
    part.put_labeled(["full"], *fields)
    part.put_labeled(["half"], *fields[:5])
    for field in fields[64:]:
        expect_unreadable(lambda field=field: part.get(["half"], field), "half", field)
    expect_ids(part.claim("train", fields[64:66]), ["full"], "rows that have both fields")


@requirement("PUT-14")
def test_the_receipt_names_what_was_written(part: PartitionUnderTest) -> None:
    def expect_receipt(meta: BatchMeta, ids: list[str], fields: list[str]) -> None:
        expect_equal(meta.sample_ids, ids, "sample_ids on the receipt")
        expect_equal(meta.partition_id, part.id, "partition_id on the receipt")
        expect_equal(sorted(meta.fields or []), sorted(fields), "fields written by this put")

    expect_receipt(part.put_labeled(IDS, "x", "y"), IDS, ["x", "y"])
    expect_receipt(part.put_labeled(IDS[::-1], "z"), IDS[::-1], ["z"])
    others = [f"other_{i}" for i in IDS]
    expect_receipt(part.put_labeled(others, "y", "z"), others, ["y", "z"])


def rows_for(part: PartitionUnderTest, ids: list[str]) -> TensorDict:
    """A batch of self-describing rows, unlike those that other puts bring."""
    return batch_of({"x": labeled_column(part.id, ids, "x", 1)}, len(ids))


WRONG_PUTS: dict[str, Callable[[PartitionUnderTest, list[str]], object]] = {
    "batch_too_small": lambda part, ids: part.put_batch(ids, rows_for(part, ids[:2])),
    "batch_too_large": lambda part, ids: part.put_batch(ids, rows_for(part, [*ids, "u1_g1"])),
    "too_few_tags": lambda part, ids: part.put_batch(ids, rows_for(part, ids), [{"v": 1}] * 2),
    "too_many_tags": lambda part, ids: part.put_batch(ids, rows_for(part, ids), [{"v": 1}] * 4),
    "no_tags_in_the_list": lambda part, ids: part.put_batch(ids, rows_for(part, ids), []),
    "too_few_tags_alone": lambda part, ids: part.put(ids, [{"v": 1}] * 2),
    "too_many_tags_alone": lambda part, ids: part.put(ids, [{"v": 1}] * 4),
}


@requirement("PUT-15")
@pytest.mark.parametrize("wrong_put", WRONG_PUTS.values(), ids=WRONG_PUTS)
def test_misaligned_put_is_rejected_before_it_stores(
    part: PartitionUnderTest, wrong_put: Callable[[PartitionUnderTest, list[str]], object]
) -> None:
    expect_rejection(lambda: wrong_put(part, IDS), "a put whose parts differ in length")
    with leaning_on("PUT-16"):
        part.expect_absent(IDS)


@requirement("PUT-15")
@pytest.mark.parametrize("wrong_put", WRONG_PUTS.values(), ids=WRONG_PUTS)
def test_misaligned_put_leaves_the_rows_as_they_were(
    part: PartitionUnderTest, wrong_put: Callable[[PartitionUnderTest, list[str]], object]
) -> None:
    stored = {i: {"v": 0, "row": n} for n, i in enumerate(IDS)}
    part.put_labeled(IDS, tags=list(stored.values()))
    expect_rejection(lambda: wrong_put(part, IDS), "a put whose parts differ in length")
    with leaning_on("PUT-16"):
        part.expect_labeled(IDS)
        expect_equal(tags_by_id(part.claim("train")), stored, "tags as before the put")


def put_with_a_nested_leaf(part: PartitionUnderTest, ids: list[str]) -> object:
    batch = rows_for(part, ids)
    batch["y"] = TensorDict({"deep": torch.zeros(len(ids))}, batch_size=[len(ids)])
    return part.put_batch(ids, batch, [{"v": 1}] * len(ids))


FAILING_PUTS = WRONG_PUTS | {"nested_leaf": put_with_a_nested_leaf}


@requirement("PUT-16")
@pytest.mark.parametrize("failing_put", FAILING_PUTS.values(), ids=FAILING_PUTS)
def test_a_failed_put_leaves_nothing(
    part: PartitionUnderTest, failing_put: Callable[[PartitionUnderTest, list[str]], object]
) -> None:
    part.put_labeled(["done"])
    expect_ids(part.claim("train"), ["done"], "the one row there is")
    if not is_rejected(lambda: failing_put(part, IDS)):
        return  # it did not fail: PUT-15 and PUT-25 judge whether it must
    part.expect_absent(IDS)
    expect(part.consumed("train"), "every row still consumed", "a row of the failed put counted")
    part.put_labeled(IDS, "z")
    left = {i: tags for i, tags in _tags_of(part.claim("train", ["z"])).items() if "v" in tags}
    expect(not left, "no tag of the failed put", left)


@requirement("PUT-16")
def test_a_put_that_fails_for_an_id_twice_leaves_nothing(part: PartitionUnderTest) -> None:
    part.put_labeled(["done"])
    expect_ids(part.claim("train"), ["done"], "the one row there is")
    twice = [*IDS, IDS[0]]
    try:
        part.put_labeled(twice, tags=[{"v": 1}] * len(twice))
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - whether it is to be refused, and how, is for PUT-19
        part.expect_absent(IDS)
        expect(
            part.consumed("train"), "every row still consumed", "a row of the failed put counted"
        )
        part.put_labeled(IDS, "z")
        came = _tags_of(part.claim("train", ["z"]))
        left = {i: tags for i, tags in came.items() if "v" in tags}
        expect(not left, "no tag of the failed put", left)


@requirement("PUT-16")
def test_a_failed_put_leaves_what_was_there(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, tags=[{"m": n} for n, _ in enumerate(IDS)])
    batch = batch_of({"x": labeled_column(part.id, IDS, "x", 1)}, 3)
    batch["y"] = TensorDict({"deep": torch.zeros(3)}, batch_size=[3])
    if not is_rejected(lambda: part.put_batch(IDS, batch, [{"m": 9}] * 3)):
        return  # it did not fail: PUT-25 judges whether it must
    part.expect_labeled(IDS)
    came = tags_by_id(part.claim("train"))
    expect_equal(came, {i: {"m": n} for n, i in enumerate(IDS)}, "tags as before the failed put")


def _tags_of(meta: BatchMeta) -> dict[str, dict]:
    return {} if meta.tags is None else tags_by_id(meta)


@requirement("PUT-17")
def test_tags_alone_are_accepted(part: PartitionUnderTest) -> None:
    part.put(IDS, [{"std": float(i)} for i in range(3)])
    part.put_labeled(IDS)
    came = {i: tags.get("std") for i, tags in tags_by_id(part.claim("train")).items()}
    expect_equal(came, dict(zip(IDS, [0.0, 1.0, 2.0], strict=True)), "tags put before the fields")


@requirement("PUT-18")
@pytest.mark.parametrize("kind", ["fields", "tags"])
def test_an_empty_put_does_nothing(part: PartitionUnderTest, kind: str) -> None:
    part.put_labeled(["done"])
    expect_ids(part.claim("train"), ["done"], "the one row there is")
    before = part.consumed("train")
    columns = {"x": labeled_column(part.id, ["done"], "x")[:0]} if kind == "fields" else {}
    meta = part.put([], [] if kind == "tags" else None, **columns)
    expect_equal(meta.sample_ids, [], "sample_ids of an empty put")
    expect_equal(meta.partition_id, part.id, "partition_id of an empty put")
    expect_equal(part.claim_all(), [], "rows claimable after it")
    expect_equal(part.consumed("train"), before, "the status, which was the same before:")


@requirement("PUT-18")
def test_an_empty_put_sets_no_dtype(part: PartitionUnderTest) -> None:
    part.put([], x=torch.zeros(0, 4))  # what an empty shard has, whatever the rows are like
    part.put_labeled(IDS)
    part.expect_labeled(IDS)


@requirement("PUT-19")
def test_duplicate_ids_in_one_put_are_rejected(part: PartitionUnderTest) -> None:
    expect_rejection(
        lambda: part.put(["a", "b", "a"], x=torch.zeros(3, 4)), "an id twice in one put", ValueError
    )


@tensorclass
class Images:
    """A column of a class of its own, as frameworks pack their images."""

    pixels: torch.Tensor


BAD_LEAVES: dict[str, Callable[[], object]] = {
    "nested_tensordict": lambda: TensorDict({"deep": torch.ones(3)}, batch_size=[3]),
    "tensorclass": lambda: Images(pixels=torch.ones(3, 2), batch_size=[3]),
    "sparse": lambda: torch.eye(3).to_sparse(),
}


@requirement("PUT-25")
@pytest.mark.parametrize("make", BAD_LEAVES.values(), ids=BAD_LEAVES)
def test_a_leaf_that_is_no_column_is_rejected_or_intact(
    part: PartitionUnderTest, make: Callable[[], object]
) -> None:
    leaf, batch = make(), rows_for(part, IDS)
    batch["y"] = leaf
    if is_rejected(lambda: part.put_batch(IDS, batch)):
        with leaning_on("PUT-16"):
            part.expect_absent(IDS)
        return
    due = "a leaf that is no column to be rejected, or to come back intact (left out, the model "
    due += "would never see it)"
    try:
        came = part.get(IDS, "x", "y").get("y", None)
    except ContractViolation:
        raise
    except Exception as error:
        got = f"a put that was accepted, and reading it raised {type(error).__name__}: {error}"
        raise ContractViolation(due, shorten(got)) from error
    expect(same_leaf(came, leaf), due, f"a put that was accepted, and in its place {came!r}")


def same_leaf(came: object, leaf: object) -> bool:
    """Whether what came is the leaf that was put: of its kind, with its values."""
    if isinstance(leaf, torch.Tensor):
        if not isinstance(came, torch.Tensor) or came.dtype != leaf.dtype:
            return False
        dense = came.to_dense() if came.layout is not torch.strided else came
        return torch.equal(dense, leaf.to_dense())
    if type(came) is not type(leaf):
        return False
    inner, outer = (one.to_tensordict() for one in (came, leaf))  # type: ignore[attr-defined]
    return inner.keys() == outer.keys() and all(same_leaf(inner[k], outer[k]) for k in outer.keys())  # noqa: SIM118


@requirement("PUT-25")
def test_a_nested_column_of_the_older_layout_is_exact_or_rejected(part: PartitionUnderTest) -> None:
    rows = [torch.ones(n) for n in (1, 2, 3)]
    batch = rows_for(part, IDS)
    batch["y"] = torch.nested.nested_tensor(rows, layout=torch.strided)
    try:
        part.put_batch(IDS, batch)
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - any refusal will do
        with leaning_on("PUT-16"):
            part.expect_absent(IDS)
    else:
        part.expect_rows(IDS, y=rows)

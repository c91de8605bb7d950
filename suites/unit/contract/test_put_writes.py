"""PUT: which fields and rows put_samples adds, refuses and leaves unchanged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_equal,
    expect_rejection,
    is_rejected,
    leaning_on,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_column, labeled_rows
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    batch_of,
    expect_ids,
    expect_unreadable,
)
from rlconform.certify.threads import run_concurrently
from rlconform.contract import BatchMeta
from rlconform.wire import object_array

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("PUT-11")
def test_a_later_column_keeps_the_earlier_ones(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, "x")
    part.put_labeled(IDS[::-1], "y")
    part.expect_labeled(IDS, "x", "y")


@requirement("PUT-11", race=True)
@pytest.mark.parametrize(("width", "rounds"), [(32, 20), (1 << 18, 6)], ids=["small", "large"])
def test_columns_put_by_two_threads_at_once_are_both_kept(
    part: PartitionUnderTest, width: int, rounds: int
) -> None:
    for n in range(rounds):
        ids = [f"{sample_id}_{n}" for sample_id in IDS]
        rows = {field: labeled_rows(part.id, ids, field, width=width) for field in ("x", "y", "z")}
        part.put(ids, x=torch.stack(rows["x"]))
        columns = {field: torch.stack(rows[field]) for field in ("y", "z")}
        run_concurrently(
            [lambda i=ids, f=f, c=c: part.put(i, **{f: c}) for f, c in columns.items()],
            part.timeouts.operation,
            "writer",
        )
        part.expect_rows(ids, **rows)
        expect_ids(part.claim("train", ["x", "y", "z"]), ids, "rows with what both writers wrote")


@requirement("PUT-12")
def test_rows_without_a_field_are_not_produced_for_it(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, "x")
    part.put_labeled(IDS[:1], "y")
    expect_ids(part.claim("train", ["x", "y"]), IDS[:1], "rows that have both fields")
    expect_unreadable(lambda: part.get(IDS[1:2], "y"), IDS[1], "y")
    part.put_labeled(IDS[1:], "y")
    expect_ids(part.claim("train", ["x", "y"]), IDS[1:], "rows that got the field later")
    part.expect_labeled(IDS, "x", "y")


@requirement("PUT-12")
def test_rows_may_lack_any_of_many_fields(new_partition: Callable[..., PartitionUnderTest]) -> None:
    fields = [f"f{n}" for n in range(70)]  # more than a 64-bit mask holds
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
    """Return a batch of labeled rows in a version that no other put uses."""
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
def test_misaligned_put_is_rejected_and_stores_nothing(
    part: PartitionUnderTest, wrong_put: Callable[[PartitionUnderTest, list[str]], object]
) -> None:
    expect_rejection(lambda: wrong_put(part, IDS), "a put whose parts differ in length")
    with leaning_on("PUT-16"):
        part.expect_absent(IDS)


@requirement("PUT-15")
@pytest.mark.parametrize("wrong_put", WRONG_PUTS.values(), ids=WRONG_PUTS)
def test_misaligned_put_changes_no_existing_row(
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
        return  # the put succeeded; PUT-15 and PUT-25 check whether it must fail
    part.expect_absent(IDS)
    expect(part.consumed("train"), "every row still consumed", "a row of the failed put counted")
    part.put_labeled(IDS, "z")
    left = {i: tags for i, tags in _tags_of(part.claim("train", ["z"])).items() if "v" in tags}
    expect(not left, "no tag of the failed put", left)


@requirement("PUT-16")
def test_a_put_that_fails_for_a_duplicate_id_leaves_nothing(part: PartitionUnderTest) -> None:
    part.put_labeled(["done"])
    expect_ids(part.claim("train"), ["done"], "the one row there is")
    twice = [*IDS, IDS[0]]
    try:
        part.put_labeled(twice, tags=[{"v": 1}] * len(twice))
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - PUT-19 checks whether it is refused
        part.expect_absent(IDS)
        expect(
            part.consumed("train"), "every row still consumed", "a row of the failed put counted"
        )
        part.put_labeled(IDS, "z")
        got = _tags_of(part.claim("train", ["z"]))
        left = {i: tags for i, tags in got.items() if "v" in tags}
        expect(not left, "no tag of the failed put", left)


@requirement("PUT-16")
def test_a_failed_put_changes_no_existing_row(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, tags=[{"m": n} for n, _ in enumerate(IDS)])
    batch = batch_of({"x": labeled_column(part.id, IDS, "x", 1)}, 3)
    batch["y"] = TensorDict({"deep": torch.zeros(3)}, batch_size=[3])
    if not is_rejected(lambda: part.put_batch(IDS, batch, [{"m": 9}] * 3)):
        return  # the put succeeded; PUT-25 checks whether it must fail
    part.expect_labeled(IDS)
    got = tags_by_id(part.claim("train"))
    expect_equal(got, {i: {"m": n} for n, i in enumerate(IDS)}, "tags as before the failed put")


def _tags_of(meta: BatchMeta) -> dict[str, dict]:
    return {} if meta.tags is None else tags_by_id(meta)


@requirement("PUT-17")
def test_tags_alone_are_accepted(part: PartitionUnderTest) -> None:
    part.put(IDS, [{"std": float(i)} for i in range(3)])
    part.put_labeled(IDS)
    got = {i: tags.get("std") for i, tags in tags_by_id(part.claim("train")).items()}
    expect_equal(got, dict(zip(IDS, [0.0, 1.0, 2.0], strict=True)), "tags put before the fields")


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
def test_an_empty_put_fixes_no_dtype(part: PartitionUnderTest) -> None:
    part.put([], x=torch.zeros(0, 4))  # the column of an empty shard, for any dtype of the rows
    part.put_labeled(IDS)
    part.expect_labeled(IDS)


@requirement("PUT-19")
def test_duplicate_ids_in_one_put_are_rejected(part: PartitionUnderTest) -> None:
    expect_rejection(
        lambda: part.put(["a", "b", "a"], x=torch.zeros(3, 4)), "an id twice in one put", ValueError
    )


#: Columns that no plane can store, beside a good one: the whole put has to fail.
UNSTORABLE: dict[str, Callable[[], Any]] = {
    "nested_tensordict": lambda: TensorDict({"deep": torch.zeros(3)}, batch_size=[3]),
    "lock": lambda: object_array(["a", threading.Lock(), "b"]),
}


@requirement("PUT-16")
@pytest.mark.parametrize("make", UNSTORABLE.values(), ids=UNSTORABLE)
@pytest.mark.parametrize("bad", ["a", "z"], ids=["bad_one_first", "bad_one_last"])
def test_a_failed_overwrite_of_two_columns_changes_neither(
    new_partition: Callable[..., PartitionUnderTest], make: Callable[[], Any], bad: str
) -> None:
    part = new_partition(fields=["m", bad])
    part.put_labeled(IDS, "m", bad)
    names = sorted(["m", bad])
    columns = {"m": labeled_column(part.id, IDS, "m", 1), bad: make()}
    batch = TensorDict({name: columns[name] for name in names}, batch_size=[3])
    if is_rejected(lambda: part.put_batch(IDS, batch)):  # PUT-25, PUT-28: whether it must be
        part.expect_labeled(IDS, "m", bad)


@requirement("PUT-16", scattered=False)
def test_a_large_put_that_fails_at_its_last_row_leaves_nothing(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    ids = [f"r{n}" for n in range(3000)]
    part = new_partition(fields=["x", "log"], num_samples=len(ids))
    logs = object_array([f"log {n}" for n in range(len(ids) - 1)] + [threading.Lock()])
    if is_rejected(lambda: part.put(ids, x=torch.arange(len(ids)), log=logs)):
        for field in ("x", "log"):
            for sample_id in (ids[0], ids[1500], ids[-1]):
                read = partial(part.get, [sample_id], field)
                expect_unreadable(read, sample_id, field)
        expect_equal(part.claim("train", batch_size=len(ids)).sample_ids, [], "rows claimable")


@requirement("PUT-16")
@pytest.mark.parametrize("rows", [3, 2], ids=["all_rows", "some_rows"])
def test_a_put_of_another_dtype_that_fails_changes_no_tags(
    part: PartitionUnderTest, rows: int
) -> None:
    part.put(IDS, [{"m": n} for n, _ in enumerate(IDS)], x=torch.zeros(3, 4))
    other = torch.zeros(rows, 4, dtype=torch.int16)
    if not is_rejected(lambda: part.put(IDS[:rows], [{"m": 9, "new": 1}] * rows, x=other)):
        return  # the put succeeded; PUT-23 checks whether it may
    part.expect_rows(IDS, x=[torch.zeros(4)] * 3)
    got = tags_by_id(part.claim("train"))
    expect_equal(got, {i: {"m": n} for n, i in enumerate(IDS)}, "tags as before the failed put")


@requirement("PUT-16")
@pytest.mark.parametrize("bad", [0, 300, 599])
def test_objects_of_a_put_that_fails_leave_no_rows(
    new_partition: Callable[..., PartitionUnderTest], bad: int
) -> None:
    ids = [f"r{n}" for n in range(600)]
    part = new_partition(fields=["x", "log"], num_samples=len(ids))
    logs: list[Any] = [{"n": n} for n in range(len(ids))]
    logs[bad] = {"lock": threading.Lock()}
    if is_rejected(lambda: part.put(ids, x=torch.arange(len(ids)), log=logs)):
        for sample_id in (ids[0], ids[bad], ids[-1]):
            expect_unreadable(partial(part.get, [sample_id], "x"), sample_id, "x")
        expect_equal(part.claim("train", batch_size=len(ids)).sample_ids, [], "rows claimable")

"""PUT: what put_samples does to the plane: columns appended, replaced, refused, and left alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.expect import (
    ContractViolation,
    expect,
    expect_column,
    expect_equal,
    expect_rejection,
    overwrite_first,
)
from rlconform.certify.marks import requirement
from rlconform.certify.partition import (
    Partition,
    batch_of,
    expect_ids,
    expect_unreadable,
    tags_by_id,
)
from rlconform.contract import BatchMeta

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("PUT-09")
def test_changing_the_callers_tensor_changes_nothing_stored(part: Partition) -> None:
    dense, values = torch.zeros(3, 4), torch.zeros(6)
    part.put(
        IDS, x=dense, y=torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 3, 6]))
    )
    dense.fill_(9)
    values.fill_(9)
    part.expect_rows(IDS, x=[torch.zeros(4)] * 3, y=[torch.zeros(n) for n in (1, 2, 3)])


@requirement("PUT-09")
def test_changing_what_get_returned_changes_nothing_stored(part: Partition) -> None:
    part.put(IDS, x=torch.zeros(3, 4))
    batch = part.get(IDS, "x")
    expect_column(batch, "x", [torch.zeros(4)] * 3)
    overwrite_first(batch, "x")
    part.expect_rows(IDS, x=[torch.zeros(4)] * 3)


@requirement("PUT-09")
def test_changing_a_tag_dict_changes_nothing_stored(part: Partition) -> None:
    tags = [{"version": 1} for _ in IDS]
    part.put_payload(IDS, tags=tags)
    for row in tags:
        row["version"] = 9
    came = tags_by_id(part.claim("train"))
    expect_equal(came, {i: {"version": 1} for i in IDS}, "tags of the put")
    for row in came.values():
        row["version"] = 9
    expect_equal(
        tags_by_id(part.claim("prev_lp")), {i: {"version": 1} for i in IDS}, "tags of the put"
    )


@requirement("PUT-10")
def test_a_slice_costs_what_its_copy_costs(part: Partition) -> None:
    rows, width = 16, 64 * 1024  # 1 MiB
    base = torch.empty(512 * rows, width, dtype=torch.uint8)  # 512 MiB, its pages never touched
    ids = [f"r{i}" for i in range(rows)]
    columns = {"slice": base[:rows], "copy": base[:rows].clone()}
    # The fastest of several turns each, since other load on the machine only ever adds to a time;
    # the first of a turn alternates, since it may be the one that pays for fresh memory.
    fastest = dict.fromkeys(columns, math.inf)
    for turn in range(8):
        for name in sorted(columns, reverse=turn % 2 == 0):
            started = time.perf_counter()
            part.put(ids, x=columns[name])
            fastest[name] = min(fastest[name], time.perf_counter() - started)
    of_slice, of_copy = fastest["slice"], fastest["copy"]
    expect(
        of_slice <= 5 * of_copy,
        f"putting a 1 MiB slice of 512 MiB within 5x of its copy ({of_copy * 1e3:.1f} ms)",
        f"{of_slice * 1e3:.1f} ms",
    )


@requirement("PUT-11")
def test_a_later_column_leaves_the_earlier_ones(part: Partition) -> None:
    part.put_payload(IDS, "x")
    part.put_payload(IDS[::-1], "y")
    part.expect_payload(IDS, "x", "y")


@requirement("PUT-12")
def test_rows_without_a_field_stay_unproduced_for_it(part: Partition) -> None:
    part.put_payload(IDS, "x")
    part.put_payload(IDS[:1], "y")
    expect_ids(part.claim("train", ["x", "y"], 1), IDS[:1], "rows that have both fields")
    expect_unreadable(lambda: part.get(IDS[1:2], "y"), IDS[1], "y")
    part.put_payload(IDS[1:], "y")
    expect_ids(part.claim("train", ["x", "y"], 2), IDS[1:], "rows that got the field later")
    part.expect_payload(IDS, "x", "y")


OVERWRITES: dict[str, tuple[list[torch.Tensor], list[torch.Tensor]]] = {
    "values": ([torch.zeros(4)] * 3, [torch.ones(4)] * 3),
    "longer": ([torch.zeros(2)] * 3, [torch.ones(7)] * 3),
    "shorter": ([torch.zeros(7)] * 3, [torch.ones(2)] * 3),
    "to_jagged": ([torch.zeros(4)] * 3, [torch.ones(n) for n in (1, 5, 0)]),
    "from_jagged": ([torch.zeros(n) for n in (1, 5, 2)], [torch.ones(4)] * 3),
    "dtype": ([torch.zeros(4)] * 3, [torch.ones(4, dtype=torch.int64)] * 3),
    "dtype_and_length": ([torch.zeros(4)] * 3, [torch.ones(6, dtype=torch.bfloat16)] * 3),
}


@requirement("PUT-13")
@pytest.mark.parametrize(("first", "second"), OVERWRITES.values(), ids=OVERWRITES)
def test_the_newest_value_is_read(
    part: Partition, first: list[torch.Tensor], second: list[torch.Tensor]
) -> None:
    for rows in (first, second):
        column = torch.nested.nested_tensor(rows, layout=torch.jagged)
        part.put(IDS, x=torch.stack(rows) if len({len(r) for r in rows}) == 1 else column)
        part.expect_rows(IDS, x=rows)


@requirement("PUT-13")
def test_one_row_is_replaced_and_its_neighbours_stay(part: Partition) -> None:
    part.put_payload(IDS)
    part.put_payload(IDS[1:2], version=1)
    part.expect_payload(IDS[1:2], version=1)
    part.expect_payload([IDS[0], IDS[2]])


@requirement("PUT-14")
def test_the_receipt_names_what_was_written(part: Partition) -> None:
    def expect_receipt(meta: BatchMeta, ids: list[str], fields: list[str]) -> None:
        expect_equal(meta.sample_ids, ids, "sample_ids on the receipt")
        expect_equal(meta.partition_id, part.id, "partition_id on the receipt")
        expect_equal(sorted(meta.fields or []), sorted(fields), "fields written by this put")

    expect_receipt(part.put_payload(IDS, "x", "y"), IDS, ["x", "y"])
    expect_receipt(part.put_payload(IDS[::-1], "z"), IDS[::-1], ["z"])


WRONG_PUTS: dict[str, Callable[[Partition, list[str]], object]] = {
    "batch_too_small": lambda part, ids: part.put_batch(
        ids, TensorDict({"x": torch.zeros(2, 4)}, batch_size=[2])
    ),
    "batch_too_large": lambda part, ids: part.put_batch(
        ids, TensorDict({"x": torch.zeros(4, 4)}, batch_size=[4])
    ),
    "too_few_tags": lambda part, ids: part.put(ids, [{"v": 1}] * 2, x=torch.zeros(3, 4)),
    "too_many_tags": lambda part, ids: part.put(ids, [{"v": 1}] * 4, x=torch.zeros(3, 4)),
    "too_few_tags_alone": lambda part, ids: part.put(ids, [{"v": 1}] * 2),
}


@requirement("PUT-15")
@pytest.mark.parametrize("wrong_put", WRONG_PUTS.values(), ids=WRONG_PUTS)
def test_misaligned_put_is_rejected_before_it_stores(
    part: Partition, wrong_put: Callable[[Partition, list[str]], object]
) -> None:
    expect_rejection(lambda: wrong_put(part, IDS), "a put whose parts differ in length")
    part.expect_absent(IDS)


FAILING_PUTS = WRONG_PUTS | {
    "nested_leaf": lambda part, ids: part.put_batch(
        ids,
        TensorDict(
            {"x": torch.zeros(3, 4), "y": TensorDict({"deep": torch.zeros(3)}, batch_size=[3])},
            batch_size=[3],
        ),
        [{"v": 1}] * 3,
    ),
}


@requirement("PUT-16")
@pytest.mark.parametrize("failing_put", FAILING_PUTS.values(), ids=FAILING_PUTS)
def test_a_failed_put_leaves_nothing(
    part: Partition, failing_put: Callable[[Partition, list[str]], object]
) -> None:
    part.put_payload(["done"])
    expect_ids(part.claim("train"), ["done"], "the one row there is")
    expect_rejection(lambda: failing_put(part, IDS), "a put that can't be carried out")
    part.expect_absent(IDS)
    expect(part.consumed("train"), "every row still consumed", "a row of the failed put counted")
    part.put_payload(IDS, "z")
    left = {i: tags for i, tags in _tags_of(part.claim("train", ["z"], 3)).items() if "v" in tags}
    expect(not left, "no tag of the failed put", left)


def _tags_of(meta: BatchMeta) -> dict[str, dict]:
    return {} if meta.tags is None else tags_by_id(meta)


@requirement("PUT-17")
def test_tags_alone_are_accepted(part: Partition) -> None:
    part.put(IDS, [{"std": float(i)} for i in range(3)])
    part.put_payload(IDS)
    came = {i: tags.get("std") for i, tags in tags_by_id(part.claim("train")).items()}
    expect_equal(came, dict(zip(IDS, [0.0, 1.0, 2.0], strict=True)), "tags put before the fields")


@requirement("PUT-18")
@pytest.mark.parametrize("kind", ["fields", "tags"])
def test_an_empty_put_does_nothing(part: Partition, kind: str) -> None:
    meta = part.put([], x=torch.zeros(0, 4)) if kind == "fields" else part.put([], [])
    expect_equal(meta.sample_ids, [], "sample_ids of an empty put")
    expect_equal(part.claim_all(), [], "rows claimable after it")


@requirement("PUT-19")
def test_duplicate_ids_in_one_put_are_rejected(part: Partition) -> None:
    expect_rejection(
        lambda: part.put(["a", "b", "a"], x=torch.zeros(3, 4)), "an id twice in one put", ValueError
    )


@requirement("PUT-23")
def test_rows_of_two_dtypes_are_never_cast(part: Partition) -> None:
    whole, real = torch.arange(4), torch.arange(4) + 0.5
    part.put(["int"], x=whole.reshape(1, 4))
    try:
        part.put(["float"], x=real.reshape(1, 4))
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may refuse with any error
        part.expect_absent(["float"])
    else:
        part.expect_rows(["float"], x=[real])
        _expect_not_cast(part, [whole, real])
    part.expect_rows(["int"], x=[whole])


def _expect_not_cast(part: Partition, rows: list[torch.Tensor]) -> None:
    """Reading both rows at once gives each as it was put, or is refused."""
    try:
        batch = part.get(["int", "float"], "x")
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - see above
        return
    expect_column(batch, "x", rows)


BAD_LEAVES: dict[str, Callable[[], object]] = {
    "nested_tensordict": lambda: TensorDict({"deep": torch.ones(3)}, batch_size=[3]),
    "sparse": lambda: torch.eye(3).to_sparse(),
}


@requirement("PUT-25")
@pytest.mark.parametrize("make", BAD_LEAVES.values(), ids=BAD_LEAVES)
def test_a_leaf_that_is_no_column_is_rejected(part: Partition, make: Callable[[], object]) -> None:
    batch = batch_of({"x": torch.zeros(3, 4), "y": make()}, 3)
    expect_rejection(lambda: part.put_batch(IDS, batch), "a leaf that is no column")
    part.expect_absent(IDS)

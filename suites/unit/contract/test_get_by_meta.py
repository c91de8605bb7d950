"""GET: get_data reads the rows of a meta, also of an old one, and claims nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_column,
    expect_equal,
    expect_lookup_error,
    expect_rejection,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.contract import DataPlaneClient, KVBatchMeta

IDS = ["u0_g0", "u0_g1", "u1_g0", "u1_g1"]


def meta_of(part: PartitionUnderTest, ids: list[str], fields: list[str] | None) -> KVBatchMeta:
    return KVBatchMeta(partition_id=part.id, task_name=None, sample_ids=ids, fields=fields)


@requirement("GET-06")
def test_the_meta_of_cleared_rows_reads_no_newer_rows(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:2])
    meta = part.claim("train")
    part.clear(IDS[:2])
    part.put_labeled(IDS[2:])  # may reuse the cleared rows' slots
    expect_lookup_error(
        lambda: part.get_data(meta), "get_data with the meta of rows cleared since (a late reader)"
    )


@requirement("GET-11")
def test_select_fields_override_the_fields_of_the_meta(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, "x", "y")
    for named, select, expected in (
        (["x"], ["y"], ["y"]),
        (["x"], None, ["x"]),
        (None, ["y"], ["y"]),
    ):
        batch = part.get_data(meta_of(part, IDS[::-1], named), select)
        got = sorted(map(str, batch.keys()))
        expect_equal(got, expected, f"fields for meta.fields={named}, select_fields={select}")
        for field in expected:
            expect_column(batch, field, labeled_rows(part.id, IDS[::-1], field))
    expect(not part.consumed("train"), "get_data to move no cursor", "consumed")
    expect_ids(part.claim("train"), IDS, "rows claimable after get_data")


@requirement("GET-11")
def test_get_data_without_any_fields_raises(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    expect_rejection(
        lambda: part.get_data(meta_of(part, IDS, None)), "a meta that names no fields", ValueError
    )


@requirement("GET-11")
def test_the_meta_of_an_old_claim_claims_no_newer_rows(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:2])
    old = part.claim("train")
    part.get_data(old, ["x"])
    part.clear(IDS[:2])
    part.put_labeled(IDS[:2], version=1)
    try:
        part.get_data(old, ["x"])
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - GET-06 judges reads by the meta of rows that were cleared
        pass
    expect_ids(part.claim("train"), IDS[:2], "rows claimable after a read by an old meta")


#: Row numbers of a claim's rows, as a trainer may arrange them.
ARRANGED = {
    "reversed": [3, 2, 1, 0],
    "rotated": [1, 2, 3, 0],
    "swapped": [1, 0, 3, 2],
    "inner_swapped": [0, 2, 1, 3],
    "doubled": [2, 2, 0, 1],
    "part": [3, 1],
}


@requirement("GET-01")
@pytest.mark.parametrize("order", ARRANGED.values(), ids=ARRANGED)
def test_the_rows_of_a_meta_come_in_its_own_order(
    part: PartitionUnderTest, order: list[int]
) -> None:
    part.put_labeled(IDS, "x", "y")
    meta = KVBatchMeta.of(part.claim("train", ["x", "y"], len(IDS)))
    arranged = meta.subset(order)
    for select in (None, ["y"]):
        batch = part.get_data(arranged, select)
        for field in select or ["x", "y"]:
            expect_column(batch, field, labeled_rows(part.id, arranged.sample_ids, field))


@requirement("GET-11", leans_on=("PUT-04",))
def test_the_meta_of_a_claim_reads_columns_in_their_whole_width(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    """Padding is a part of a dense column: lengths in the meta don't cut it."""
    part = new_partition(fields=["input_ids", "token_mask"])
    tokens = torch.arange(4 * 300).reshape(4, 300)
    mask = tokens.remainder(2).bool()
    stamps = [{"input_lengths": n} for n in (3, 20, 64, 100)]
    part.put(IDS, stamps, input_ids=tokens, token_mask=mask)
    meta = part.claim("train", ["input_ids"], 4)
    order = [IDS.index(sample_id) for sample_id in meta.sample_ids]
    batch = part.get_data(meta, ["input_ids", "token_mask"])
    expect_column(batch, "input_ids", list(tokens[order]))
    expect_column(batch, "token_mask", list(mask[order]))


@requirement("GET-13", changes_results=True)
def test_a_meta_has_fields_and_tags_of_its_own(
    client: DataPlaneClient, part: PartitionUnderTest
) -> None:
    """Who narrows the fields of one meta must not change those of another, or what was asked."""
    part.put_labeled(IDS, tags=[{"step": 1}] * len(IDS))
    required = ["x"]

    def claim(task: str) -> KVBatchMeta:
        how = {"batch_size": len(IDS), "blocking": False}
        where = {"partition_id": part.id, "task_name": task, "required_fields": required}
        return KVBatchMeta.of(client.claim_meta(**where, **how))

    first, second = claim("train"), claim("prev_lp")
    if isinstance(first.fields, list):
        first.fields.append("more")
    for tags in first.tags or []:
        tags["step"] = 2
    expect_equal(required, ["x"], "the fields that the claim was asked for")
    expect_equal(list(second.fields or ["x"]), ["x"], "fields of the other meta")
    expect_equal([tags["step"] for tags in second.tags or []], [1] * len(IDS), "its tags")
    expect_equal(first.sample_ids, second.sample_ids, "rows of the two metas")

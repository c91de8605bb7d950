"""REG: what registering a partition opens, and what it keeps apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.values import expect, expect_equal, expect_rejection
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import random_rows
from rlconform.certify.scenarios.meta_values import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.threads import BackgroundCall, run_concurrently
from rlconform.contract import DataPlaneClient
from rlconform.contract.fields import ADVANTAGES, INPUT_IDS, SAMPLE_MASK
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("REG-01")
def test_each_declared_field_takes_rows(new_partition: Callable[..., PartitionUnderTest]) -> None:
    lengths = [(3,), (1,), (5,)]
    rows = {
        INPUT_IDS: random_rows(torch.int64, lengths),
        ADVANTAGES: random_rows(torch.float32, lengths),
        SAMPLE_MASK: list(torch.tensor([1, 0, 1], dtype=torch.int32)),
    }
    part = new_partition(fields=list(rows))
    for field, column in rows.items():
        part.put(IDS, **{field: stack_or_nest(column)})
    part.expect_rows(IDS, **rows)


@requirement("REG-01")
def test_fields_may_have_common_names(new_partition: Callable[..., PartitionUnderTest]) -> None:
    fields = ["values", "keys", "items", "shape", "names", "data", "id", "index"]
    part = new_partition(fields=fields)
    part.put_labeled(IDS, *fields)
    part.expect_labeled(IDS, *fields)
    expect_ids(part.claim("train", fields), IDS, "rows with a critic's values and other names")


@requirement("REG-02")
def test_undeclared_field_is_kept(new_partition: Callable[..., PartitionUnderTest]) -> None:
    part = new_partition(fields=["x"])
    part.put_labeled(IDS, "x", "pixel_values")
    part.expect_labeled(IDS, "x", "pixel_values")


@requirement("REG-03")
def test_ids_live_again_after_clear_and_register(part: PartitionUnderTest) -> None:
    for step in range(10):
        part.put_labeled(IDS, version=step)
        expect_ids(part.claim("train"), IDS, f"rows claimed in step {step}")
        part.expect_labeled(IDS, version=step)
        part.clear(IDS)
        part.register()


@requirement("REG-04")
def test_partitions_share_no_rows(new_partition: Callable[..., PartitionUnderTest]) -> None:
    train, val = new_partition(), new_partition()
    for part, mode in ((train, "train"), (val, "val")):
        part.put_labeled(IDS, tags=[{"mode": mode} for _ in IDS])
    train.expect_labeled(IDS)
    val.expect_labeled(IDS)
    claimed = train.claim("train")
    expect_ids(claimed, IDS, "rows claimed in one partition")
    expect_equal(tags_by_id(claimed), {i: {"mode": "train"} for i in IDS}, "tags in that partition")
    expect(not val.consumed("train"), "the other partition unconsumed", "consumed")
    expect(train.consumed("train"), "this one consumed, whatever waits in the other", "unconsumed")
    train.clear(IDS)
    val.expect_labeled(IDS)
    expect_ids(val.claim("train"), IDS, "rows claimed in the other partition")


@requirement("REG-04")
def test_partitions_share_no_cursors_and_no_tags(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    train, val = new_partition(), new_partition()
    for part, mode in ((train, "train"), (val, "val")):
        part.put_labeled(IDS, tags=[{"mode": mode} for _ in IDS])
    for part in (train, val):
        expect_ids(part.claim("train"), IDS, "rows claimed in each partition")
    train.clear(IDS)
    came = tags_by_id(val.claim("prev_lp"))
    expect_equal(
        came, {i: {"mode": "val"} for i in IDS}, "tags there, after a clear in the other one"
    )


@requirement("REG-04")
def test_a_partition_that_is_registered_again_changes_no_other(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    train, val = new_partition(), new_partition()
    for part in (train, val):
        part.put_labeled(IDS)
        expect_ids(part.claim("train"), IDS, "rows claimed in each partition")
    val.clear(IDS)
    val.register()
    expect_equal(train.claim_all(), [], "rows claimed again, as the other partition began anew")
    expect(train.consumed("train"), "this partition consumed as before", "unconsumed")
    train.expect_labeled(IDS)


@requirement("REG-04")
def test_a_partition_is_not_all_that_begin_with_its_name(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    short = new_partition()
    long = new_partition(exact=f"{short.id}_async")
    for part in (short, long):
        part.put_labeled(IDS, tags=[{"weight_version": 1}] * 3)
    short.clear(None)
    long.expect_labeled(IDS)
    expect_ids(long.claim("train"), IDS, "rows of a partition whose name begins with the other's")


@requirement("REG-04")
def test_partitions_share_no_schema(new_partition: Callable[..., PartitionUnderTest]) -> None:
    train, val = new_partition(), new_partition()
    floats, integers = torch.ones(3, 2), torch.arange(3)
    train.put(IDS, x=floats)
    val.put(IDS, x=integers)
    train.expect_rows(IDS, x=list(floats))
    val.expect_rows(IDS, x=list(integers))


@requirement("REG-05")
@pytest.mark.parametrize(
    "wrong",
    [
        {"partition_id": ""},
        {"num_samples": -1},
        {"fields": ["x", "x"]},
        {"consumer_tasks": ["train", "train"]},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_nonsense_is_rejected(
    client: DataPlaneClient, part: PartitionUnderTest, wrong: dict
) -> None:
    right = {
        "partition_id": f"{part.id}-typo",
        "fields": ["x"],
        "num_samples": 4,
        "consumer_tasks": ["train"],
    }
    expect_rejection(
        lambda: client.register_partition(**(right | wrong)),
        f"register_partition with {wrong}",
        ValueError,
    )


@requirement("REG-06", leans_on=("REG-02",))
def test_many_producers_bring_new_fields_at_once(part: PartitionUnderTest) -> None:
    producers, fields_each = 8, 10

    def produce(producer: int) -> None:
        for k in range(fields_each):
            part.put_labeled([f"p{producer}"], f"extra_{producer}_{k}")

    calls = [lambda p=p: produce(p) for p in range(producers)]
    half = part.timeouts.check / 2
    producing = BackgroundCall(lambda: run_concurrently(calls, half, "producer"), "the producers")
    while not producing.finished.is_set():
        part.claim("train", ["x"])
        producing.give_way()
    producing.result(part.timeouts.operation)
    for producer in range(producers):
        fields = [f"extra_{producer}_{k}" for k in range(fields_each)]
        part.expect_labeled([f"p{producer}"], *fields)

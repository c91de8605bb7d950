"""REG: which fields and tasks a registration declares, and which calls the plane refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect, expect_equal, expect_rejection
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import random_rows
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    expect_ids,
    expect_unreadable,
)
from rlconform.certify.scenarios.registrations import TASKS_REGISTERED_AGAIN
from rlconform.certify.threads import BackgroundCall, run_concurrently
from rlconform.contract import DataPlaneClient
from rlconform.contract.fields import ADVANTAGES, INPUT_IDS, SAMPLE_MASK
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("REG-01")
def test_each_declared_field_accepts_rows(new_partition: Callable[..., PartitionUnderTest]) -> None:
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
def test_ids_can_be_reused_after_clear_and_register(part: PartitionUnderTest) -> None:
    for step in range(10):
        part.put_labeled(IDS, version=step)
        expect_ids(part.claim("train"), IDS, f"rows claimed in step {step}")
        part.expect_labeled(IDS, version=step)
        part.clear(IDS)
        part.register()


@requirement("REG-03")
@pytest.mark.parametrize(
    "tasks", [("train", "eval"), ("eval", "train"), ("train",)], ids=["other", "order", "fewer"]
)
def test_ids_can_be_reused_after_a_registration_with_other_tasks(
    part: PartitionUnderTest, tasks: tuple[str, ...]
) -> None:
    part.put_labeled(IDS)
    expect_ids(part.claim("train"), IDS, "rows of the first registration")
    part.clear(None)
    part.register(tasks=tasks)
    part.put_labeled(IDS, version=1)
    for task in tasks:
        expect_ids(part.claim(task), IDS, f"rows of the second registration, claimed by {task!r}")


#: Cycles beyond 256, so that a generation counted in eight bits begins anew.
CYCLES = 300


@requirement("REG-03", leans_on=("CLEAR-03", "CLEAR-04", "TAG-05"), scattered=False)
@pytest.mark.parametrize("cleared", [IDS[:1], None], ids=["by_id", "by_none"])
def test_ids_can_be_reused_in_many_steps(
    part: PartitionUnderTest, cleared: list[str] | None
) -> None:
    """The row of the first step has a tag and a field more: neither may come back."""
    part.put(IDS[:1], [{"v": 0, "first": True}], w=torch.ones(1))
    part.clear(cleared)
    part.register()
    for step in part.rounds(CYCLES, 1 / 12):
        part.put_labeled(IDS[:1], version=step, tags=[{"v": step}])
        claimed = part.claim("train")
        expect_ids(claimed, IDS[:1], f"rows claimed in step {step}")
        expect_equal(tags_by_id(claimed), {IDS[0]: {"v": step}}, f"tags of step {step}")
        part.clear(cleared)
        part.register()
    part.put_labeled(IDS[:1])
    expect_unreadable(lambda: part.get(IDS[:1], "w"), IDS[0], "w")


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
def test_invalid_registrations_are_rejected(
    client: DataPlaneClient, part: PartitionUnderTest, wrong: dict
) -> None:
    valid = {
        "partition_id": f"{part.id}-typo",
        "fields": ["x"],
        "num_samples": 4,
        "consumer_tasks": ["train"],
    }
    expect_rejection(
        lambda: client.register_partition(**(valid | wrong)),
        f"register_partition with {wrong}",
        ValueError,
    )


@requirement("REG-06", leans_on=("REG-02",))
def test_many_producers_add_new_fields_at_once(part: PartitionUnderTest) -> None:
    producers, fields_each = 8, 10

    def produce(producer: int) -> None:
        for k in range(fields_each):
            part.put_labeled([f"p{producer}"], f"extra_{producer}_{k}")

    calls = [lambda p=p: produce(p) for p in range(producers)]
    half = part.timeouts.check / 2
    producing = BackgroundCall(lambda: run_concurrently(calls, half, "producer"), "the producers")
    while not producing.finished.is_set():
        part.claim("train", ["x"])
        producing.wait_briefly()
    producing.result(part.timeouts.operation)
    for producer in range(producers):
        fields = [f"extra_{producer}_{k}" for k in range(fields_each)]
        part.expect_labeled([f"p{producer}"], *fields)


@requirement("REG-07")
def test_more_rows_than_num_samples_are_accepted(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(num_samples=2)
    part.put_labeled(IDS[:2])
    expect_ids(part.claim("train"), IDS[:2], "as many rows as num_samples")
    expect(part.consumed(), "every row consumed", "False")
    more = [f"more{n}" for n in range(8)]
    part.put_labeled(more)
    expect(not part.consumed(), "rows beyond num_samples to count as unconsumed", "True")
    expect_ids(part.claim("train"), more, "rows beyond num_samples")
    expect(part.consumed(), "every row consumed", "False")
    part.expect_labeled([*IDS[:2], *more])


@requirement("REG-07")
def test_fewer_rows_than_num_samples_can_all_be_consumed(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(num_samples=64)
    part.put_labeled(IDS)
    expect_ids(part.claim("train"), IDS, "rows of a partition registered for 64")
    expect(part.consumed(), "every row that exists consumed", "False")
    waiting = BackgroundCall(lambda: part.claim(batch_size=1, blocking=True), "a blocked claim")
    part.put_labeled(["later"])
    expect_ids(waiting.result(part.timeouts.operation), ["later"], "a row after that")


any_tasks = pytest.mark.parametrize(
    "tasks", TASKS_REGISTERED_AGAIN.values(), ids=TASKS_REGISTERED_AGAIN
)


@requirement("REG-08")
@any_tasks
def test_registering_a_partition_again_keeps_rows_claims_and_tags(
    part: PartitionUnderTest, tasks: tuple[str, ...]
) -> None:
    tags = {i: {"row": n} for n, i in enumerate(IDS)}
    part.put_labeled(IDS, tags=list(tags.values()))
    first = part.claim(batch_size=1).sample_ids
    part.register(tasks=tasks)
    part.expect_labeled(IDS)
    rest = sorted(set(IDS) - set(first))
    expect_equal(sorted(part.claim_all()), rest, "rows not claimed before")
    expect_equal(tags_by_id(part.claim("prev_lp")), tags, "tags after the registration")


@requirement("REG-07", scattered=False)
def test_many_times_num_samples_are_counted(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part, ids = new_partition(num_samples=1), [f"r{n}" for n in range(1100)]
    part.put(ids, x=torch.arange(len(ids)))
    part.claim("train", batch_size=len(ids) - 1)
    expect(not part.consumed(), "one row of 1,100 unconsumed", "True for num_samples=1")
    expect_equal(len(part.claim("train", batch_size=8).sample_ids), 1, "rows left")
    expect(part.consumed(), "every row consumed", "False for num_samples=1")

"""CLAIM-02, CLAIM-08: each task claims every ready row exactly once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import expect, expect_equal, is_rejected
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    claim_until_done,
    expect_once,
)
from rlconform.certify.scenarios.labeled_rows import labeled_column
from rlconform.certify.scenarios.large_step import STEP_IDS, put_large_step
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.registrations import TASKS_REGISTERED_AGAIN
from rlconform.certify.threads import BackgroundCall, run_concurrently

IDS = [f"u{i // 2}_g{i % 2}" for i in range(6)]


@requirement("CLAIM-02")
def test_each_row_is_claimed_once_in_sequence(part: PartitionUnderTest) -> None:
    ids = [f"r{i}" for i in range(20)]
    part.put_labeled(ids)
    expect_equal(Counter(part.claim_all(batch_size=7)), Counter(ids), "claims by id")
    expect_equal(part.claim(batch_size=1).sample_ids, [], "rows left")


@requirement("CLAIM-02")
def test_each_row_is_claimed_once_by_threads(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    ids = [f"r{i}" for i in range(120)]
    part = new_partition(num_samples=len(ids))

    def produce() -> None:
        for start in range(0, len(ids), 6):
            part.put_labeled(ids[start : start + 6])

    def claim() -> list[str]:
        return part.claim(batch_size=5).sample_ids

    producer = BackgroundCall(produce, "the producer")
    claims = claim_until_done(producer, [claim] * 4, len(ids), part.timeouts.check)
    producer.result(part.timeouts.operation)
    expect_once([*claims, part.claim_all()], ids)


@requirement("CLAIM-02", race=True)
def test_no_row_is_lost_while_the_partition_grows(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    producers, puts, rows_each = 8, 8, 5
    part = new_partition(num_samples=producers * puts * rows_each)

    def produce(producer: int) -> list[str]:
        put: list[str] = []
        for n in range(puts):
            ids = [f"p{producer}_{n}_{k}" for k in range(rows_each)]
            part.put_labeled(ids, "x", "y")
            put += ids
        return put

    calls = [partial(produce, producer) for producer in range(producers)]
    put = [i for ids in run_concurrently(calls, part.timeouts.check, "producer") for i in ids]
    claims = Counter(part.claim_all("train", ["x", "y"], batch_size=64))
    lost = sorted(set(put) - set(claims))
    expect(not lost, "each row claimable whose put returned", f"{len(lost)} lost: {lost[:4]}")
    expect_equal(claims, Counter(put), "claims by id")
    expect(part.consumed("train"), "every row consumed", "a row counted that no claim returned")
    part.expect_labeled(put, "x", "y")


@requirement("CLAIM-02")
def test_clearing_claimed_rows_loses_no_unclaimed_row(
    part: PartitionUnderTest,
) -> None:
    part.put_labeled(IDS)
    first = part.claim(batch_size=2).sample_ids
    part.clear(first)
    rest = [i for i in IDS if i not in first]
    expect_ids(part.claim(), rest, "rows not yet claimed")


@requirement("CLAIM-08")
@pytest.mark.parametrize("field", ["x", "y"], ids=["overwritten", "written_to"])
def test_a_write_to_a_claimed_row_does_not_make_it_claimable_again(
    part: PartitionUnderTest, field: str
) -> None:
    part.put_labeled(IDS)
    part.claim("train")
    part.put_labeled(IDS, field, version=1)
    expect_equal(part.claim_all("train"), [], "rows claimed again after a write")
    expect_equal(
        part.claim_all("train", sorted({"x", field})), [], "rows claimed again by other fields"
    )


@requirement("CLAIM-08", leans_on=("PUT-23",))
@pytest.mark.parametrize("rows", [len(IDS), 2], ids=["all_rows", "some_rows"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool], ids=str)
def test_a_put_of_another_dtype_does_not_make_claimed_rows_claimable_again(
    part: PartitionUnderTest, dtype: torch.dtype, rows: int
) -> None:
    """Planes that undo a refused put by writing rows anew may forget who claimed them."""
    part.put(IDS, x=torch.ones(len(IDS), 2, dtype=torch.uint8))
    part.claim("train")
    # PUT-13 and PUT-23 check whether it may be refused.
    refused = is_rejected(lambda: part.put(IDS[:rows], x=torch.ones(rows, 2, dtype=dtype)))
    after = "a refused put" if refused else "an overwrite"
    expect_equal(part.claim_all("train"), [], f"rows claimed again after {after}")


@requirement("CLAIM-08")
def test_tags_put_on_a_claimed_row_do_not_make_it_claimable_again(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.claim("train")
    part.put(IDS, [{"advantage": 0.5}] * len(IDS))
    expect_equal(part.claim_all("train"), [], "rows claimed again after a put of tags")


@requirement("CLAIM-08", race=True)
def test_a_write_that_races_a_claim_does_not_undo_it(part: PartitionUnderTest) -> None:
    for n in range(20):
        ids = [f"{sample_id}_{n}" for sample_id in IDS[:3]]
        part.put_labeled(ids, "x")

        def claim(delay_s: float = n % 4 * 0.0005) -> list[str]:
            time.sleep(delay_s)  # some claims happen before the write, some during it, some after
            return part.claim("train", batch_size=3).sample_ids

        _, claimed = run_concurrently(
            [lambda i=ids: part.put_labeled(i, "y"), claim],
            part.timeouts.operation,
            "writer or claimer",
        )
        claims = Counter([*claimed, *part.claim_all("train")])
        expect_equal(claims, Counter(ids), "claims by id, rows being written to meanwhile")


@requirement("CLAIM-08")
def test_a_write_to_a_row_claimed_long_ago_does_not_make_it_claimable_again(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    step = put_large_step(new_partition)
    claimed = [i for _ in range(4) for i in step.claim(batch_size=len(STEP_IDS) // 4).sample_ids]
    expect_equal(len(claimed), len(STEP_IDS), "rows claimed")
    old = [claimed[0], claimed[3000], claimed[-1]]
    step.put(old, x=torch.tensor([7, 8, 9]))
    step.put(old, y=torch.tensor([7, 8, 9]))
    expect_equal(step.claim(batch_size=3).sample_ids, [], "rows claimed again after a write")
    again = step.claim(fields=["x", "y"], batch_size=3).sample_ids
    expect_equal(again, [], "rows claimed again by other fields")


@requirement("CLAIM-02")
@pytest.mark.parametrize("tasks", TASKS_REGISTERED_AGAIN.values(), ids=TASKS_REGISTERED_AGAIN)
def test_no_claim_changes_hands_when_a_partition_is_registered_again(
    part: PartitionUnderTest, tasks: tuple[str, ...]
) -> None:
    """Planes that know a task by its place in the list take one task's claims for another's."""
    part.put_labeled(IDS)
    part.claim("train", batch_size=1)
    part.register(tasks=tasks)
    got = sorted(part.claim_all("prev_lp"))
    # REG-08 judges whether the rows are still there.
    expect(got in ([], sorted(IDS)), f"all rows for a task that had claimed none: {IDS}", got)


def lists_in_use(part: PartitionUnderTest) -> list[dict[str, Any]]:
    """Put rows of three steps from lists that are filled again; return the tags of each row."""
    ids: list[str] = []
    tags: list[dict[str, Any]] = []
    stored: list[dict[str, Any]] = []
    for step in range(3):
        ids[:] = [f"{sample_id}_{step}" for sample_id in IDS]
        tags[:] = [{"row": sample_id} for sample_id in ids]
        stored += tags
        part.note_ids(ids)
        batch = TensorDict({"x": labeled_column(part.id, ids, "x")}, batch_size=[len(ids)])
        part.client.put_samples(sample_ids=ids, partition_id=part.id, fields=batch, tags=tags)
    ids.clear()
    tags.clear()
    return stored


@requirement("CLAIM-02", leans_on=("TAG-01",))
def test_rows_that_were_put_from_lists_in_use_are_claimed_once(part: PartitionUnderTest) -> None:
    """Planes that keep the caller's lists name the rows of its next call instead."""
    tasks = ["train", "prev_lp"]
    part.client.register_partition(
        partition_id=part.id, fields=["x"], num_samples=9, consumer_tasks=tasks
    )
    tasks.clear()
    stored = {tags["row"]: tags for tags in lists_in_use(part)}
    for task in ("train", "prev_lp"):
        meta = part.claim(task, batch_size=len(stored))
        expect_ids(meta, list(stored), f"rows for {task!r}, put from lists that then changed")
        expect_equal(tags_by_id(meta), stored, "tags put from a list that then changed")
    part.expect_labeled(list(stored))

"""TAG-02, TAG-04: tags of rows that are written to, or claimed, while they are put."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlconform.certify.assertions.expect import expect, expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall, run_concurrently
from rlconform.contract import BatchMeta

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("TAG-02", race=True)
def test_a_write_that_races_a_put_of_tags_does_not_undo_it(part: PartitionUnderTest) -> None:
    new = {"weight_version": 2, "std": 0.5}  # all keys: TAG-03 checks whether tags are merged
    for n in range(20):
        ids = [f"{sample_id}_{n}" for sample_id in IDS]
        part.put_labeled(ids, "x", tags=[{"weight_version": 1}] * len(ids))
        run_concurrently(
            [
                lambda i=ids: part.put_labeled(i, "y"),
                lambda i=ids: part.put(i, [new] * len(i)),
            ],
            part.timeouts.operation,
            "writer",
        )
        got = tags_by_id(part.claim("train", ["x", "y"]))
        tagged = dict.fromkeys(ids, new)
        expect_equal(got, tagged, "tags of rows that were tagged and written to at once")


def expect_stamped(metas: list[BatchMeta], count: int) -> None:
    """Expect ``count`` rows in all, each with the tag ``n`` of its own number."""
    seen = {i: tags for meta in metas for i, tags in tags_by_id(meta).items()}
    late = [i for i, tags in seen.items() if tags.get("n") != int(i.removeprefix("r"))]
    expect(
        not late,
        "the tags of its put on every claimed row (a filter would lack what it decides by)",
        f"{len(late)} of {len(seen)} claimed without them",
    )
    expect_equal(len(seen), count, "rows claimed while they were put")


def claims_beside(
    producer: BackgroundCall, part: PartitionUnderTest, count: int, size: int
) -> list[BatchMeta]:
    """Claim ``size`` rows at a time until ``count`` are claimed, or the producer has no more."""
    metas: list[BatchMeta] = []
    while sum(len(meta.sample_ids) for meta in metas) < count:
        over = producer.finished.is_set()
        meta = part.claim("train", ["x"], size)
        if meta.sample_ids:
            metas.append(meta)
        elif over:
            break
        else:
            producer.wait_briefly()
    producer.result(part.timeouts.operation)
    return metas


@requirement("TAG-04", race=True)
def test_no_row_is_claimed_before_its_tags(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    rounds = 120
    part = new_partition(num_samples=rounds)

    def produce() -> None:  # row by row: with more rows claims are slower and find a gap less often
        for n in range(rounds):
            part.put_labeled([f"r{n}"], tags=[{"n": n}])

    producer = BackgroundCall(produce, "the producer")
    expect_stamped(claims_beside(producer, part, rounds, 1), rounds)


#: More rows than the pages have in which a plane stores tags.
MANY_ROWS = 1500


@requirement("TAG-04", race=True)
def test_no_row_of_a_large_put_is_claimed_before_its_tags(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(num_samples=MANY_ROWS)
    ids, tags = [f"r{n}" for n in range(MANY_ROWS)], [{"n": n} for n in range(MANY_ROWS)]
    waiting = BackgroundCall(
        lambda: part.claim("prev_lp", batch_size=MANY_ROWS, blocking=True), "the blocked claim"
    )
    producer = BackgroundCall(
        lambda: part.put(ids, tags, x=torch.arange(MANY_ROWS)), "a put of many rows"
    )
    expect_stamped(claims_beside(producer, part, MANY_ROWS, MANY_ROWS), MANY_ROWS)
    expect_stamped([waiting.result(part.timeouts.operation)], MANY_ROWS)

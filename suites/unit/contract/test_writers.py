"""Several who write the same rows at once: each write adds to the row, and undoes nobody's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from rlconform.certify.assertions.values import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.meta_values import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.threads import run_concurrently

IDS = ["u0_g0", "u0_g1", "u1_g0"]


def rounds() -> Iterator[list[str]]:
    """Ids of one round after another."""
    for turn in range(20):
        yield [f"{sample_id}_{turn}" for sample_id in IDS]


@requirement("PUT-11", race=True)
def test_columns_of_two_writers_both_stay(part: PartitionUnderTest) -> None:
    for ids in rounds():
        part.put_labeled(ids, "x")
        run_concurrently(
            [lambda i=ids, f=field: part.put_labeled(i, f) for field in ("y", "z")],
            part.timeouts.operation,
            "writer",
        )
        part.expect_labeled(ids, "x", "y", "z")
        expect_ids(part.claim("train", ["x", "y", "z"]), ids, "rows with what both writers wrote")


@requirement("CLAIM-08", race=True)
def test_a_write_beside_a_claim_does_not_undo_it(part: PartitionUnderTest) -> None:
    for turn, ids in enumerate(rounds()):
        part.put_labeled(ids, "x")

        def claim(later_s: float = turn % 4 * 0.0005) -> list[str]:
            time.sleep(later_s)  # now before the write, now in the middle of it, now after it
            return part.claim("train").sample_ids

        _, claimed = run_concurrently(
            [lambda i=ids: part.put_labeled(i, "y"), claim],
            part.timeouts.operation,
            "writer or claimer",
        )
        claims = Counter([*claimed, *part.claim_all("train")])
        expect_equal(claims, Counter(ids), "claims by id, rows being written to meanwhile")


@requirement("TAG-02", race=True)
def test_a_write_beside_a_stamp_does_not_undo_it(part: PartitionUnderTest) -> None:
    stamp = {"weight_version": 2, "std": 0.5}  # whole: whether tags are merged is not asked here
    for ids in rounds():
        part.put_labeled(ids, "x", tags=[{"weight_version": 1}] * len(ids))
        run_concurrently(
            [
                lambda i=ids: part.put_labeled(i, "y"),
                lambda i=ids: part.put(i, [stamp] * len(i)),
            ],
            part.timeouts.operation,
            "writer",
        )
        came = tags_by_id(part.claim("train", ["x", "y"]))
        stamped = dict.fromkeys(ids, stamp)
        expect_equal(came, stamped, "tags of rows that were stamped and written to at once")

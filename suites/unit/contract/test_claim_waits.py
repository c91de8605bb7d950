"""CLAIM: what a claim that waits is woken by, what it comes with, and whom it keeps waiting."""

from __future__ import annotations

from collections import Counter

from rlconform.certify.assertions.values import expect, expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import expect_waiting
from rlconform.certify.scenarios.meta_values import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.threads import BackgroundCall

IDS = [f"u{i // 2}_g{i % 2}" for i in range(6)]
#: Seconds after which calls of many transports are given up, and more.
LONG_S = 6.0
#: More than the threads of a small server.
CROWD = 16


def waits(claim: BackgroundCall, part: PartitionUnderTest, what: str) -> None:
    expect_waiting(claim, part, what, "an answer without it")


@requirement("CLAIM-05")
def test_a_put_wakes_the_claim_that_it_is_for(part: PartitionUnderTest) -> None:
    second = BackgroundCall(lambda: part.claim("train", ["y"], 2, blocking=True), "a claim for y")
    waits(second, part, "y")
    first = BackgroundCall(lambda: part.claim("prev_lp", ["x"], 2, blocking=True), "a claim for x")
    waits(first, part, "x")
    part.put_labeled(IDS[:2], "x")
    expect_ids(first.result(part.timeouts.settle), IDS[:2], "rows with x, for whom waited for x")
    waits(second, part, "y")
    part.put_labeled(IDS[:2], "y")
    expect_ids(second.result(part.timeouts.settle), IDS[:2], "rows with y, for whom waited for y")


@requirement("CLAIM-05")
def test_claims_that_wait_keep_nobody_from_working(part: PartitionUnderTest) -> None:
    claims = [
        BackgroundCall(lambda: part.claim(batch_size=1, blocking=True), f"blocked claim {n}")
        for n in range(CROWD)
    ]
    waits(claims[0], part, "a row")
    ids = [f"r{n}" for n in range(CROWD)]
    put = BackgroundCall(lambda: part.put_labeled(ids), f"a put beside {CROWD} claims that wait")
    put.result(part.timeouts.operation)
    came = [i for claim in claims for i in claim.result(part.timeouts.operation).sample_ids]
    expect_equal(Counter(came), Counter(ids), "claims by id")


@requirement("CLAIM-05")
def test_rows_cleared_meanwhile_do_not_count_for_a_claim_that_waits(
    part: PartitionUnderTest,
) -> None:
    part.put_labeled(IDS[:2])
    waiting = BackgroundCall(lambda: part.claim(batch_size=3, blocking=True), "the blocked claim")
    waits(waiting, part, "a third row")
    part.clear(IDS[:1])
    part.put_labeled(IDS[2:3])
    waits(waiting, part, "a third row in place of the one that was cleared")
    part.put_labeled(IDS[3:4])
    expect_ids(waiting.result(part.timeouts.settle), IDS[1:4], "the three rows there are")


@requirement("CLAIM-05")
def test_a_claim_waits_unless_it_is_told_not_to(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:1])
    waiting = BackgroundCall(
        lambda: part.client.claim_meta(
            partition_id=part.id, task_name="train", required_fields=["x"], batch_size=2
        ),
        "a claim with neither blocking nor timeout_s",
    )
    waits(waiting, part, "a second row")
    part.put_labeled(IDS[1:2])
    expect_ids(waiting.result(part.timeouts.settle), IDS[:2], "rows of the woken claim")


@requirement("CLAIM-06", patience=60)
def test_a_claim_waits_for_as_long_as_it_is_told(part: PartitionUnderTest) -> None:
    waiting = BackgroundCall(
        lambda: part.claim(batch_size=2, blocking=True, timeout_s=20 * LONG_S), "the blocked claim"
    )
    part.put_labeled(IDS[:1])
    try:
        early = waiting.returned_within(LONG_S)
    except TimeoutError:
        early = True
    expect(
        not early,
        f"a claim with {20 * LONG_S:g} s to wait for {LONG_S:g} s and more",
        f"an end after {waiting.seconds:.1f} s" if early else "",
        leans_on=("CLAIM-05",),
    )
    part.put_labeled(IDS[1:2])
    expect_ids(waiting.result(part.timeouts.settle), IDS[:2], "rows of the claim that waited long")


@requirement("TAG-01")
def test_a_claim_that_waited_has_the_tags_and_lengths_too(part: PartitionUnderTest) -> None:
    tags = {i: {"weight_version": n, "input_lengths": 5 + n} for n, i in enumerate(IDS[:3])}
    waiting = BackgroundCall(lambda: part.claim(batch_size=3, blocking=True), "the blocked claim")
    part.put_labeled(IDS[:2], tags=[tags[i] for i in IDS[:2]])
    waits(waiting, part, "a third row")
    part.put_labeled(IDS[2:3], tags=[tags[IDS[2]]])
    woken = waiting.result(part.timeouts.settle)
    expect_equal(tags_by_id(woken), tags, "tags of the woken claim")
    lengths = dict(zip(woken.sample_ids, woken.sequence_lengths or [], strict=False))
    expect_equal(
        lengths, {i: tags[i]["input_lengths"] for i in tags}, "sequence_lengths of the woken claim"
    )

"""CLAIM across processes: each row is claimed once, and a put by any process wakes a claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from rlconform.certify.assertions.expect import expect, expect_equal, leaning_on
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    claim_until_done,
    expect_once,
    expect_timeout,
    expect_waiting,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.two_processes import each_pair, looker_and_changer
from rlconform.certify.threads import BackgroundCall, run_concurrently
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("CLAIM-05")
@pytest.mark.parametrize("waits", ["owner", "attached"])
def test_a_put_of_another_process_wakes_a_blocked_claim(
    part: PartitionUnderTest, actors: Actors, waits: str
) -> None:
    first, second, third = (part.via(actor) for actor in actors(3))
    waiter, first = (part, first) if waits == "owner" else (third, part)
    # a claim that finds no rows times out soon, so its process can claim again
    waiting = start_blocking_claim(waiter, 3, timeout_s=2 * part.timeouts.settle)
    first.put_labeled(IDS[:2])
    expect_waiting(waiting, part, "the third row", "an answer with two rows ready")
    second.put_labeled(IDS[2:])
    expect_ids(expect_woken(waiting, waiter, second), IDS, "rows of the woken claim")


@requirement("CLAIM-05")
@pytest.mark.parametrize(("older", "newer"), [(1, 2), (0, 1), (1, 0)])
def test_a_claim_is_served_before_an_older_one_of_another_process_that_needs_more(
    part: PartitionUnderTest, actors: Actors, older: int, newer: int
) -> None:
    """Planes that wake one waiting process may wake the one for which the rows don't suffice."""
    views = [part, *(part.via(actor) for actor in actors(2))]
    timeout_s = 4 * part.timeouts.settle
    large = start_blocking_claim(views[older], 4, timeout_s)
    expect_waiting(large, part, "four rows", "an answer with no row ready")
    small = start_blocking_claim(views[newer], 2, timeout_s)
    expect_waiting(small, part, "two rows", "an answer with no row ready")
    (putter,) = (view for n, view in enumerate(views) if n not in {older, newer})
    putter.put_labeled(IDS[:2])
    expect_ids(expect_woken(small, views[newer], putter), IDS[:2], "rows of the smaller claim")
    rest = ["r0", "r1", "r2", "r3"]
    putter.put_labeled(rest)
    expect_ids(expect_woken(large, views[older], putter), rest, "rows of the larger claim")


@requirement("CLAIM-06")
def test_a_timed_out_claim_of_an_attached_client_claims_nothing(
    part: PartitionUnderTest, actors: Actors
) -> None:
    (attached,) = (part.via(actor) for actor in actors(1))
    part.put_labeled(IDS[:2])
    expect_timeout(attached, 3, timeout_s=0.5)
    expect_ids(attached.claim(batch_size=2), IDS[:2], "rows still claimable after the timeout")


def claims_of_four(
    part: PartitionUnderTest, ids: Sequence[str], actors: Actors, ranks: Sequence[int | None]
) -> list[list[str]]:
    """Return the rows that four processes claim, with these ranks, while this process puts them."""

    def produce() -> None:
        for start in range(0, len(ids), 8):
            part.put_labeled(ids[start : start + 8])

    def claim(consumer: PartitionUnderTest, rank: int | None) -> list[str]:
        return consumer.claim(batch_size=5, dp_rank=rank).sample_ids

    consumers = [part.via(actor) for actor in actors(4)]
    claims = [partial(claim, *each) for each in zip(consumers, ranks, strict=True)]
    producer = BackgroundCall(produce, "the producer")
    made = claim_until_done(producer, claims, len(ids), part.timeouts.check)
    producer.result(part.timeouts.operation)
    return made


@requirement("CLAIM-02")
def test_each_row_is_claimed_once_by_processes(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    ids = [f"r{i}" for i in range(96)]
    part = new_partition(num_samples=len(ids))
    expect_once([*claims_of_four(part, ids, actors, [None] * 4), part.claim_all()], ids)


@requirement("CLAIM-12")
def test_each_row_is_claimed_once_by_ranks(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    ids = [f"r{i}" for i in range(64)]
    part = new_partition(num_samples=len(ids))
    expect_once([*claims_of_four(part, ids, actors, range(4)), part.claim_all()], ids)


@pytest.mark.large
@requirement("CLAIM-15", leans_on=("CLAIM-04",))
def test_each_group_is_claimed_once_and_whole_by_processes(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    size = 3
    ids = [f"u{i // size}_g{i % size}" for i in range(16 * size)]
    part = new_partition(num_samples=len(ids), grpo_group_size=size)
    claims = claims_of_four(part, ids, actors, [None] * 4)  # at most 5 rows: one group
    split = [got for got in claims if got and len({i.partition("_")[0] for i in got}) > 1]
    split += [got for got in claims if len(got) not in {0, size}]
    expect(not split, f"one whole group of {size} in a claim of 5 rows", split[:3])
    expect_once(claims, ids)


@requirement("CLAIM-06")
def test_claims_that_time_out_beside_others_lose_no_row(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    most, at_once = 61, 4  # 61 is not a multiple of 4, so a last claim finds too few rows
    part = new_partition(num_samples=most)
    put: list[str] = []

    def produce() -> None:
        for n in part.rounds(most):  # one by one, so that claims find too few rows and wait
            part.put_labeled([f"r{n}"])
            put.append(f"r{n}")
        if len(put) % at_once == 0:
            part.put_labeled(["odd"])
            put.append("odd")

    def claim(consumer: PartitionUnderTest) -> list[str]:
        try:
            return consumer.claim(batch_size=at_once, blocking=True, timeout_s=0.02).sample_ids
        except TimeoutError:
            return []

    claims = [partial(claim, part.via(actor)) for actor in actors(3)]
    producer = BackgroundCall(produce, "the producer")
    made = claim_until_done(producer, claims, most, part.timeouts.check)
    producer.result(part.timeouts.operation)
    expect_once([*made, part.claim_all()], put)


@requirement("CLAIM-07")
def test_a_row_whose_last_fields_are_put_at_once_is_claimed_once(
    part: PartitionUnderTest, actors: Actors
) -> None:
    first, second, consumer = (part.via(actor) for actor in actors(3))
    for n in part.rounds(10):
        ids = [f"{sample_id}_{n}" for sample_id in IDS]
        part.put_labeled(ids, "x")
        calls = [
            partial(first.put_labeled, ids, "y"),
            partial(second.put_labeled, ids, "z"),
            partial(consumer.claim_all, "train", ["x", "y", "z"], len(ids)),
        ]
        *_, early = run_concurrently(calls, part.timeouts.check / 2, "writer or claimer")
        expect_once([early, part.claim_all("train", ["x", "y", "z"], len(ids))], ids)


@requirement("CLAIM-05")
def test_two_waiting_processes_are_both_served(part: PartitionUnderTest, actors: Actors) -> None:
    first, second, writer = (part.via(actor) for actor in actors(3))
    claims = [
        start_blocking_claim(view, 2, timeout_s=2 * part.timeouts.settle)
        for view in (first, second)
    ]
    for claim in claims:
        expect_waiting(claim, part, "the first row", "an answer before there was any")
    writer.put_labeled(IDS[:2])
    part.put_labeled(["more0", "more1"])
    woken = [
        expect_woken(claim, waiter, part)
        for claim, waiter in zip(claims, (first, second), strict=True)
    ]
    got = [i for meta in woken for i in meta.sample_ids]
    expect_equal(sorted(got), sorted([*IDS[:2], "more0", "more1"]), "rows of the two claims")


@requirement("CLAIM-06")
@pytest.mark.parametrize("waits", ["owner", "attached"])
def test_rows_that_trickle_in_do_not_extend_the_timeout(
    part: PartitionUnderTest, actors: Actors, waits: str
) -> None:
    (attached,) = (part.via(actor) for actor in actors(1))
    waiter, writer = (part, attached) if waits == "owner" else (attached, part)
    waiting = BackgroundCall(lambda: expect_timeout(waiter, 1000, 1.0), "claims that time out")
    for n in range(500):
        if waiting.returned_within(0.2):
            break
        writer.put_labeled([f"r{n}"])
    waiting.result(part.timeouts.operation)


@requirement("CLAIM-15", leans_on=("CLAIM-04",))
@each_pair
def test_a_partition_registered_anew_elsewhere_has_its_new_groups(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, pair: tuple[int, int]
) -> None:
    part = new_partition(register=False)
    looker, changer = looker_and_changer(part, actors, pair)
    for registers, size in ((looker, 4), (changer, 2)):
        registers.register(grpo_group_size=size)
        ids = [f"u{n // size}_g{n % size}" for n in range(2 * size)]
        changer.put_labeled(ids)
        first = looker.claim("train", batch_size=size).sample_ids
        expect_equal(len(first), size, f"rows of one group of {size}")
        rest = looker.claim("train", batch_size=size).sample_ids
        expect_equal(sorted([*first, *rest]), ids, "rows of two groups")
        changer.clear(ids)
        changer.clear(None)
        looker.clear(None)


@requirement("CLAIM-10", leans_on=("CLAIM-15",))
@pytest.mark.parametrize("size", [2, 16])
@each_pair
def test_a_group_has_no_row_that_another_process_has_cleared(
    new_partition: Callable[..., PartitionUnderTest],
    actors: Actors,
    pair: tuple[int, int],
    size: int,
) -> None:
    """Consumers that put groups together themselves must notice that a row is gone."""
    part = new_partition(grpo_group_size=size, num_samples=2 * size)
    looker, changer = looker_and_changer(part, actors, pair)
    *most, last = [f"u0_g{n}" for n in range(size)]
    changer.put_labeled([*most, "u1_g1"])
    got = looker.claim("train", batch_size=size).sample_ids
    expect_equal(got, [], "rows of two groups that lack some")
    changer.clear(most[:1])
    changer.put_labeled([last])
    got = looker.claim("train", batch_size=size).sample_ids
    expect_equal(got, [], "rows of a group that lacks one")
    changer.put_labeled(most[:1], version=1)
    expect_ids(looker.claim("train", batch_size=size), [*most, last], "rows of a whole group")


#: Rows that are ready, how often a steady consumer claims how many of them, and its rank. Some
#: planes send rows ahead only while some hundred are ready.
STEADY = {
    "no_rank": (60, 15, 2, None),
    "of_a_rank": (60, 15, 2, 0),
    "many": (300, 3, 8, None),
    "very_many_of_a_rank": (1200, 3, 8, 0),
}


@pytest.mark.large
@requirement("CLAIM-04")
@each_pair
@pytest.mark.parametrize(("rows", "claims", "size", "dp_rank"), STEADY.values(), ids=STEADY)
def test_no_rows_are_set_aside_for_a_steady_consumer(
    part: PartitionUnderTest,
    actors: Actors,
    pair: tuple[int, int],
    rows: int,
    claims: int,
    size: int,
    dp_rank: int | None,
) -> None:
    """Planes that send rows ahead to a process that claims often keep them from others.

    They must not return these rows to a claim that requires another field. The last claim is
    again for the field of the first ones: a plane may give the rows back at a claim for another.
    """
    steady, other = looker_and_changer(part, actors, pair)
    part.put_labeled([f"r{n}" for n in range(rows)])
    for n in range(claims):
        if n == claims - 1:
            meta = steady.claim("train", ["x", "y"], size, dp_rank=dp_rank)
            with leaning_on("CLAIM-01"):
                expect_equal(meta.sample_ids, [], "rows that have no y")
        meta = steady.claim("train", batch_size=size, dp_rank=dp_rank)
        expect_equal(len(meta.sample_ids), size, "rows of a claim")
    meta = other.claim("train", batch_size=rows, dp_rank=dp_rank if dp_rank is None else 1)
    expect_equal(len(meta.sample_ids), rows - claims * size, "rows left for another process")


#: Rows that are ready, and how a claim for two more waits: with or without the number of its rank,
#: for rows or for groups of two. Some planes set rows aside by pages of some hundred.
WAITS = {
    "no_rank": (4, None, None),
    "of_a_rank": (4, 1, None),
    "for_groups": (4, None, 2),
}


@requirement("CLAIM-04")
@each_pair
@pytest.mark.parametrize(
    ("rows", "dp_rank", "group_size"),
    [*WAITS.values(), pytest.param(300, None, None, marks=pytest.mark.large)],
    ids=[*WAITS, "many"],
)
def test_a_claim_that_waits_holds_no_ready_rows_back(
    new_partition: Callable[..., PartitionUnderTest],
    actors: Actors,
    pair: tuple[int, int],
    rows: int,
    dp_rank: int | None,
    group_size: int | None,
) -> None:
    """Planes that set rows aside for a claim which waits for more keep them from others."""
    part = new_partition(grpo_group_size=group_size)
    waiter, other = looker_and_changer(part, actors, pair)
    ready, new = (
        [f"{uid}{n // 2}_g{n % 2}" for n in range(count)]
        for uid, count in (("u", rows), ("v", rows + 2))
    )
    part.put_labeled(ready)
    timeout_s = 2 * part.timeouts.settle
    waiting = start_blocking_claim(waiter, rows + 2, timeout_s, dp_rank)
    expect_waiting(waiting, part, f"{rows + 2} rows", f"an answer with {rows} rows ready")
    claimed = other.claim("train", batch_size=rows)
    expect_ids(claimed, ready, "rows ready while another waits for more")
    part.put_labeled(new)
    woken = expect_woken(waiting, waiter, part)
    expect_equal(len(woken.sample_ids), rows + 2, "rows of the claim that waited")

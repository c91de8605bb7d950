"""CLAIM-15 across processes: groups whose rows come from several writers, or partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.assertions.expect import expect, expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    expect_waiting,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer
from rlconform.contract.fields import INPUT_LENGTHS


@requirement("CLAIM-15", leans_on=("REG-04",))
def test_rows_of_the_same_prompt_in_another_partition_complete_no_group(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    train, evaluation = (new_partition(grpo_group_size=2) for _ in range(2))
    (attached,) = actors(1)
    train.put_labeled(["u_g0"])
    evaluation.via(attached).put_labeled(["u_g1"])
    for part in (train, evaluation, train.via(attached), evaluation.via(attached)):
        half = part.claim(batch_size=2).sample_ids
        expect_equal(half, [], "rows of a group of which the rest is in another partition")
    train.via(attached).put_labeled(["u_g1"])
    expect_ids(train.claim(batch_size=2), ["u_g0", "u_g1"], "the whole group")


@requirement("CLAIM-15", leans_on=("CLAIM-08",))
def test_a_member_that_another_process_puts_again_brings_no_group_back(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    part = new_partition(grpo_group_size=2)
    attached, third = (part.via(actor) for actor in actors(2))
    part.put_labeled(["u_g0", "u_g1"])
    expect_ids(third.claim(batch_size=2), ["u_g0", "u_g1"], "the group")
    attached.clear(["u_g1"])
    attached.put_labeled(["u_g1"], version=1)
    for view in (part, attached, third):
        again = view.claim(batch_size=2).sample_ids
        expect_equal("u_g0" in again, False, "whether a row is claimed again with its group:")


@requirement("CLAIM-15", leans_on=("STAT-01",))
@each_pair
def test_rows_of_a_group_that_is_not_complete_count(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, pair: tuple[int, int]
) -> None:
    part = new_partition(grpo_group_size=3)
    first, second = looker_and_changer(part, actors, pair)
    whole = ["v_g0", "v_g1", "v_g2"]
    first.put_labeled(whole)
    expect_ids(first.claim(batch_size=3), whole, "the group of one writer")
    first.put_labeled(["u_g0"])
    second.put_labeled(["u_g1"])
    for view in (part, first, second):
        expect_equal(view.consumed("train"), False, "the status with two of three rows unclaimed:")
    first.put_labeled(["u_g2"])
    expect_ids(second.claim(batch_size=3), ["u_g0", "u_g1", "u_g2"], "the group of two writers")
    for view in (part, first, second):
        expect_equal(view.consumed("train"), True, "the status once the group is claimed:")


@requirement("CLAIM-15", leans_on=("TAG-01", "TAG-06"))
def test_each_row_of_a_group_of_two_writers_has_its_own_tags(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    """Planes that gather a group writer by writer return its tags in another order than its ids."""
    part = new_partition(grpo_group_size=4)
    writers = [part, *(part.via(actor) for actor in actors(2))]
    ids = [f"u_g{n}" for n in range(4)]
    due = {i: {"number": n, INPUT_LENGTHS: 10 + n} for n, i in enumerate(ids)}
    for number, sample_id in enumerate(ids):
        writers[number % 2].put_labeled([sample_id], tags=[due[sample_id]])
    meta = writers[2].claim(batch_size=4)
    expect_equal(tags_by_id(meta), due, "tags of a group that two processes put by turns")
    lengths = dict(zip(meta.sample_ids, meta.sequence_lengths or [], strict=False))
    if lengths:
        expected = {i: tags[INPUT_LENGTHS] for i, tags in due.items()}
        expect_equal(lengths, expected, "sequence_lengths of the group")


@requirement("CLAIM-15", leans_on=("PUT-13",))
@pytest.mark.parametrize("size", [2, 8, 16])
@each_pair
def test_a_member_that_two_processes_deliver_counts_once(
    new_partition: Callable[..., PartitionUnderTest],
    actors: Actors,
    pair: tuple[int, int],
    size: int,
) -> None:
    """Planes that count arrivals take a sample that was asked for twice for two members."""
    part = new_partition(grpo_group_size=size, num_samples=size)
    first, second = looker_and_changer(part, actors, pair)
    ids = [f"u_g{n}" for n in range(size)]
    first.put_labeled(ids[:-1])
    for again in range(2):
        second.put_labeled(ids[:1], version=again)
        for view in (part, first, second):
            got = view.claim(batch_size=size).sample_ids
            expect_equal(got, [], f"rows of a group of {size} that lacks one")
    second.put_labeled(ids[-1:])
    expect_ids(first.claim(batch_size=size), ids, "rows of the whole group")


@requirement("CLAIM-15", leans_on=("REG-03", "CLAIM-05"))
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
@each_pair
def test_a_claim_that_waits_returns_groups_of_the_newest_registration(
    new_partition: Callable[..., PartitionUnderTest],
    actors: Actors,
    pair: tuple[int, int],
    before: int,
    after: int,
) -> None:
    """A driver that starts again with another G registers while a trainer waits."""
    part = new_partition(grpo_group_size=before)
    waiter, driver = looker_and_changer(part, actors, pair)
    waiting = start_blocking_claim(waiter, 4, timeout_s=4 * part.timeouts.settle)
    expect_waiting(waiting, part, "four rows", "an answer with no row ready")
    driver.register(grpo_group_size=after)
    halves, rest = (["u_g0", "v_g0"], ["u_g1", "v_g1"])
    if after == 4:
        halves, rest = ["u_g0", "v_g0", "u_g1", "v_g1"], ["u_g2", "u_g3"]
    driver.put_labeled(halves)
    early = waiting.returned_within(part.timeouts.quiet)
    expect(not early, "the claim to wait for a whole group", "an answer with halves of groups")
    driver.put_labeled(rest)
    woken = expect_woken(waiting, waiter, driver)
    due = [*halves, *rest] if after == 2 else [f"u_g{n}" for n in range(4)]
    expect_ids(woken, due, "rows of whole groups")

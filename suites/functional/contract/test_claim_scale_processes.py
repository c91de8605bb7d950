"""CLAIM across processes: metas, columns and groups of rows that other processes put."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect_column, expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    expect_waiting,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer

pytestmark = pytest.mark.large

NewPartition = Callable[..., PartitionUnderTest]

#: More rows than a page, segment or statistic of most planes covers.
MANY = 9216


@requirement("CLAIM-07")
def test_rows_of_a_large_step_become_ready_by_the_columns_of_another_process(
    new_partition: NewPartition, actors: Actors
) -> None:
    """Consumers that know which rows lack a field must notice when another process brings it.

    Those that count the values of a field must not count a value that is put again.
    """
    part = new_partition(num_samples=MANY)
    consumer, worker = (part.via(actor) for actor in actors(2))
    ids = [f"r{n}" for n in range(MANY)]
    part.put_labeled(ids)
    for view in (consumer, worker):
        got = view.claim("train", ["x", "y"], MANY).sample_ids
        expect_equal(got, [], "rows claimed before they have y")
    half = MANY // 2
    for some in (ids[:half], ids[half:]):
        worker.put_labeled(some, "y")
        expect_ids(consumer.claim("train", ["x", "y"], MANY), some, "rows that have got y")
        consumer.put_labeled(some, "y", version=1)
        got = consumer.claim("train", ["x", "y"], MANY).sample_ids
        expect_equal(got, [], "rows claimed after those that have y got it again")


@requirement("CLAIM-08")
@each_pair
def test_rows_that_another_process_puts_anew_with_newer_weights_stay_claimed(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """A rollout that is put again is the same sample, whatever its tags say."""
    consumer, worker = looker_and_changer(part, actors, pair)
    ids = ["u0_g0", "u0_g1"]
    for version in range(3):
        worker.put_labeled(
            ids, "x", "y", version=version, tags=[{"weight_version": version, "retry": version}] * 2
        )
        due = ids if version == 0 else []
        got = consumer.claim("train", ["x", "y"], 2).sample_ids
        expect_equal(sorted(got), due, f"rows claimed with weight_version {version}")


#: Ids that end in consecutive numbers, with zeros before them and without.
NUMBERED = [f"u0_g{n:03}" for n in range(40)] + [f"u1_g{n}" for n in range(90, 112)]


@requirement("CLAIM-09", leans_on=("GET-11",))
@each_pair
def test_rows_with_numbers_are_read_by_the_meta_of_another_process(
    new_partition: NewPartition, actors: Actors, pair: tuple[int, int]
) -> None:
    """Metas that travel may hold such ids as a stem and a range of numbers."""
    part = new_partition(num_samples=len(NUMBERED))
    reader, consumer = looker_and_changer(part, actors, pair)
    consumer.put_labeled(NUMBERED)
    meta = consumer.claim("train", batch_size=len(NUMBERED))
    expect_ids(meta, NUMBERED, "rows claimed")
    rows = labeled_rows(part.id, meta.sample_ids, "x")
    expect_column(reader.get_data(meta), "x", rows)


#: Groups, of which some have the 16-bit hash of others.
GROUPS = 1000


@requirement("CLAIM-15")
def test_halves_of_many_groups_of_two_processes_make_no_group(
    new_partition: NewPartition, actors: Actors
) -> None:
    """Planes that put the rows of several writers together must compare whole names of groups."""
    part = new_partition(num_samples=4 * GROUPS, grpo_group_size=4)
    first, second = (part.via(actor) for actor in actors(2))
    groups = [f"step3-prompt{n * 7919 % 100_003}" for n in range(GROUPS)]
    for number, writer in enumerate((first, second)):
        writer.put_labeled([f"{group}_g{number}" for group in groups])
    for view in (part, first):
        got = view.claim("train", batch_size=4 * GROUPS).sample_ids
        expect_equal(got, [], "rows of groups of which only half is there")
    whole = [f"{groups[7]}_g{number}" for number in range(4)]
    second.put_labeled(whole[2:])
    expect_ids(part.claim("train", batch_size=4), whole, "rows of a whole group")


@requirement("CLAIM-08", leans_on=("PUT-13",))
@each_pair
def test_rows_of_a_large_step_stay_claimed_as_another_process_changes_a_dtype(
    new_partition: NewPartition, actors: Actors, pair: tuple[int, int]
) -> None:
    """A column that is stored anew brings no row back that another process has claimed."""
    rows = 400
    part = new_partition(num_samples=rows)
    claimer, writer = looker_and_changer(part, actors, pair)
    ids = [f"r{n}" for n in range(rows)]
    writer.put(ids, x=torch.arange(rows))
    claimed = claimer.claim("train", batch_size=rows // 4).sample_ids
    for values in (torch.arange(rows).double(), torch.arange(rows)):
        writer.put(ids, x=values)
        more = [*claimer.claim("train", batch_size=8).sample_ids]
        more += writer.claim("train", batch_size=8).sample_ids
        expect_equal(sorted({*claimed} & {*more}), [], "rows claimed twice")
        claimed = [*claimed, *more]
    expect_equal(len({*claimed}), len(claimed), "rows of all claims")
    rest = part.claim("train", batch_size=rows).sample_ids
    expect_equal(sorted([*claimed, *rest]), sorted(ids), "rows of all claims, in the end")


#: Rows of a claim that planes make in several pages, and rows that come while two of them wait.
HALF, FIRST = 512, 900


@requirement("CLAIM-05", leans_on=("CLAIM-02",))
def test_two_large_claims_that_wait_each_return_as_many_rows_as_they_asked_for(
    new_partition: NewPartition, actors: Actors
) -> None:
    """Planes that make a large claim in pages may let another process take rows in between."""
    consumers = actors(2)
    ids = [f"r{n}" for n in range(2 * HALF)]
    for step in range(3):
        part = new_partition(num_samples=len(ids))
        waiting = [
            start_blocking_claim(part.via(each), HALF, 4 * part.timeouts.settle)
            for each in consumers
        ]
        expect_waiting(waiting[0], part, f"{HALF} rows", "an answer with no row ready")
        part.put(ids[:FIRST], x=torch.arange(FIRST))
        for claim in waiting:
            claim.returned_within(part.timeouts.quiet)
        part.put(ids[FIRST:], x=torch.arange(FIRST, 2 * HALF))
        metas = [expect_woken(claim, part.via(consumers[0]), part) for claim in waiting]
        got = [len(meta.sample_ids) for meta in metas]
        expect_equal(got, [HALF, HALF], f"rows of each claim in step {step}")
        every = [each for meta in metas for each in meta.sample_ids]
        expect_equal(sorted(every), sorted(ids), f"rows of both claims in step {step}")
        part.clear(ids)

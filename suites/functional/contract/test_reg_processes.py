"""REG across processes: all processes use the partition that the owner registered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer
from rlconform.certify.threads import run_concurrently

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("REG-01")
def test_processes_write_the_fields_that_the_owner_declared(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    fields = ["x", "y"]
    part = new_partition(fields=fields)
    for actor, field in zip(actors(2), fields, strict=True):
        part.via(actor).put_labeled(IDS, field)
    part.expect_labeled(IDS, *fields)


@requirement("REG-01")
def test_each_process_writes_every_field_that_was_declared(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    fields = ["x", "y"]
    part = new_partition(fields=fields)
    views = {
        "owner": part,
        **{f"attached{n}": part.via(actor) for n, actor in enumerate(actors(2))},
    }
    for who, view in views.items():
        view.put_labeled([f"{who}_{i}" for i in IDS], *fields)
    for view in views.values():
        view.expect_labeled([f"{who}_{i}" for who in views for i in IDS], *fields)


@requirement("REG-03")
def test_processes_keep_using_a_partition_that_is_registered_again(
    part: PartitionUnderTest, actors: Actors
) -> None:
    rollout, policy = (part.via(actor) for actor in actors(2))
    for step in range(3):  # as a trainer does for each step
        rollout.put_labeled(IDS, tags=[{"weight_version": step}] * len(IDS), version=step)
        meta = policy.claim("train")
        expect_ids(meta, IDS, f"rows that another process claims in step {step}")
        expect_equal(
            tags_by_id(meta), {i: {"weight_version": step} for i in IDS}, f"tags of step {step}"
        )
        policy.expect_labeled(IDS, version=step)
        policy.put_labeled(IDS, "y", version=step)
        part.expect_labeled(IDS, "y", version=step)
        part.clear(IDS)
        part.register()


@requirement("REG-04")
@pytest.mark.parametrize("others", [1, 40], ids=["one", "many"])
def test_an_emptied_partition_is_never_one_that_was_registered_meanwhile(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, others: int
) -> None:
    """Planes that number partitions may give an empty one's number to the next, or a later one."""
    train, vals = new_partition(), [new_partition(register=False) for _ in range(others)]
    worker, other = actors(2)
    writer = train.via(worker)
    for step in range(2):
        writer.put_labeled(IDS, version=step)
        expect_ids(train.claim("train"), IDS, f"rows that it put in step {step}")
        train.clear(IDS)
        for val in vals:
            val.via(other).register()
        train.register()
        writer.put_labeled(["again"], version=step)
        for val in vals:
            got = val.via(other).claim("train").sample_ids
            expect_equal(got, [], "rows of a partition to which nobody has put any")
        expect_ids(train.claim("train"), ["again"], "rows of the partition that it named")
        train.expect_labeled(["again"], version=step)
        for val in vals:
            val.via(other).put_labeled(["own"], version=step)
            expect_ids(val.claim("train"), ["own"], "rows of another partition")
            val.clear(["own"])
        train.clear(["again"])


@requirement("REG-03")
@each_pair
def test_a_process_that_knows_a_field_uses_its_dtype_of_a_new_registration(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Clients that keep the schema of a partition cast or refuse the rows of the next one."""
    looker, changer = looker_and_changer(part, actors, pair)
    for step, rows in enumerate([torch.arange(3) + 0.5, torch.arange(3) << 40, torch.ones(3)]):
        more = [f"{sample_id}_{step}" for sample_id in IDS]
        changer.put(IDS, x=rows)
        looker.expect_rows(IDS, x=list(rows))
        looker.put(more, x=rows.flip(0))
        for view in (changer, looker):
            view.expect_rows([*IDS, *more], x=[*rows, *rows.flip(0)])
        looker.clear(more)
        changer.clear(IDS)
        changer.register()


@requirement("REG-06", leans_on=("REG-02",))
def test_many_processes_add_new_fields_at_once(part: PartitionUnderTest, actors: Actors) -> None:
    rounds = 5

    def produce(producing: PartitionUnderTest, who: int) -> None:
        for n in range(rounds):
            producing.put_labeled([f"p{who}"], f"extra_{who}_{n}")

    def watch() -> None:
        for _ in range(8 * rounds):
            part.claim("train", ["x"])

    producers = [part.via(actor) for actor in actors(4)]
    calls = [partial(produce, producing, who) for who, producing in enumerate(producers)]
    run_concurrently([*calls, watch], part.timeouts.check, "producer")
    for who in range(len(producers)):
        part.expect_labeled([f"p{who}"], *(f"extra_{who}_{n}" for n in range(rounds)))


@requirement("REG-03")
@each_pair
def test_a_process_that_has_claimed_serves_the_tasks_of_a_new_registration(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    looker, changer = looker_and_changer(part, actors, pair)
    changer.put_labeled(IDS)
    expect_ids(looker.claim("train"), IDS, "rows before the new registration")
    changer.clear(IDS)
    changer.register(fields=["x", "ref_lp"], tasks=["train", "critic"])
    changer.put_labeled(IDS, "x", "ref_lp", version=1)
    for task in ("critic", "train"):
        meta = looker.claim(task, ["x", "ref_lp"])
        expect_ids(meta, IDS, f"rows that {task} claims after it")
    looker.expect_labeled(IDS, "x", "ref_lp", version=1)
    expect_equal(looker.consumed("train", "critic"), True, "status of the tasks registered last")


@requirement("REG-04")
def test_a_process_uses_the_partition_that_it_names(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    train, val = new_partition(), new_partition()
    (actor,) = actors(1)
    for part in (train, val):
        part.put_labeled(IDS, tags=[{"of": part.id}] * len(IDS))
    for part in (train, val, train):
        view = part.via(actor)
        view.expect_labeled(IDS)
        meta = view.claim("train" if part is val else "prev_lp", batch_size=1)
        expect_equal([row.get("of") for row in meta.tags or []], [part.id] * len(meta.sample_ids),
                     "partition in the tags")  # fmt: skip
        view.get_data(meta)
        view.expect_rows_by_meta(IDS, x=labeled_rows(part.id, IDS, "x"))


@requirement("REG-03")
@each_pair
def test_a_process_that_knows_a_field_writes_it_after_a_registration_in_another_order(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Clients that remember which number a field has write over another one."""
    looker, changer = looker_and_changer(part, actors, pair)
    for step, fields in enumerate((["x", "y", "z"], ["z", "x", "y"], ["w", "y", "z", "x"])):
        changer.register(fields=fields)
        looker.put_labeled(IDS, "x", version=step)
        changer.put_labeled(IDS, *(each for each in fields if each not in "xy"), version=step)
        looker.put_labeled(IDS, "y", version=step)
        for view in (looker, changer):
            view.expect_labeled(IDS, *fields, version=step)
        changer.clear(IDS)


@pytest.mark.large
@requirement("REG-07", leans_on=("PUT-13",))
@each_pair
def test_what_a_process_wrote_is_replaced_though_another_put_more_rows_than_num_samples(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that move a table which is full must let every process know."""
    part = new_partition(num_samples=len(IDS))
    writer, other = looker_and_changer(part, actors, pair)
    writer.put_labeled(IDS)
    more = [f"more{n}" for n in range(40)]
    other.put_labeled(more)
    writer.put_labeled(IDS, version=1)
    for view in (other, writer):
        view.expect_labeled(IDS, version=1)
        view.expect_labeled(more)


@requirement("REG-02", leans_on=("CLAIM-01", "PUT-12"))
@each_pair
def test_fields_that_two_processes_bring_unasked_are_told_apart(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, pair: tuple[int, int]
) -> None:
    """A process that numbers such fields by itself takes one for that of another process."""
    part = new_partition()
    first, second = looker_and_changer(part, actors, pair)
    brought: dict[str, list[str]] = {"entropy": [], "values": [], "bonus": []}
    for n, field in enumerate(["entropy", "values", "bonus", "values", "entropy", "bonus"]):
        ids = [f"{field}{n}_{i}" for i in IDS]
        (first, second)[n % 2].put_labeled(ids, "x", field)
        brought[field] += ids
    for view, task in ((second, "train"), (first, "prev_lp")):
        for field, ids in brought.items():
            claimed = view.claim(task, ["x", field], len(ids))
            expect_ids(claimed, ids, f"rows that {task!r} claims by {field!r}")
            view.expect_labeled(ids, field)

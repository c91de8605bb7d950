"""STAT across processes: all processes get the same status."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.assertions.expect import expect_equal, is_rejected
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    expect_waiting,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.partition import TASKS, PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("STAT-02")
def test_every_process_gets_the_same_status(part: PartitionUnderTest, actors: Actors) -> None:
    views = [part, *(part.via(actor) for actor in actors(2))]
    part.put_labeled(IDS)
    expect_equal([v.consumed() for v in views], [False] * 3, "status with rows unclaimed")
    views[1].claim("train")
    expect_equal([v.consumed() for v in views], [True] * 3, "status with all claimed")
    views[2].put_labeled(["late"])
    expect_equal([v.consumed() for v in views], [False] * 3, "status after one more row")


@requirement("STAT-02")
@each_pair
def test_a_process_that_has_asked_gets_the_newest_status(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    looker, changer = looker_and_changer(part, actors, pair)
    changer.put_labeled(IDS)
    expect_equal(looker.consumed(), False, "status with rows unclaimed")
    changer.claim("train", batch_size=2)
    expect_equal(looker.consumed(), False, "status with a row unclaimed")
    changer.claim("train")
    expect_equal(looker.consumed(), True, "status with all claimed by another process")
    changer.put_labeled(["late", "later"])
    expect_equal(looker.consumed(), False, "status after two more rows")
    changer.clear(["late", "later"])
    expect_equal(looker.consumed(), True, "status after another process cleared them")
    expect_equal(looker.consumed("train", "prev_lp"), False, "status of a task without claims")


@requirement("STAT-02", leans_on=("REG-08",))
@each_pair
def test_a_process_that_has_asked_notices_a_task_that_another_adds(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Clients that keep the list of tasks must notice that the driver has one more.

    A process may ask for a task before it is registered; a plane may refuse to answer then.
    """
    looker, changer = looker_and_changer(part, actors, pair)
    for view in (looker, changer):
        expect_equal(view.consumed(), False, "status before anything was put")
    is_rejected(lambda: looker.consumed("awaited"))
    tasks = [*TASKS, "added", "awaited"]
    changer.register(tasks=tasks)
    changer.put_labeled(IDS)
    expect_equal(looker.consumed("train", "added"), False, "status with all rows unclaimed")
    for task in tasks:
        changer.claim(task)
    for view in (changer, looker):
        for task in tasks[-2:]:
            expect_equal(
                view.consumed(task), True, f"status of the task {task!r}, with all claimed"
            )
        expect_equal(view.consumed(*tasks), True, "status of all tasks, with all claimed")


@requirement("STAT-02")
@each_pair
def test_a_process_that_has_asked_notices_that_rows_were_replaced(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    looker, changer = looker_and_changer(part, actors, pair)
    looker.put_labeled(IDS)
    looker.claim("train")
    expect_equal(looker.consumed(), True, "status with all claimed")
    changer.put_labeled(["new0", "new1"])
    changer.clear(IDS[:2])
    expect_equal(looker.consumed(), False, "status after as many rows were put as cleared")


@requirement("STAT-01")
@pytest.mark.parametrize("tasks", [TASKS[:1], TASKS], ids=["one_task", "all_tasks"])
@pytest.mark.parametrize("how", ["looker_announces", "changer_announces", "changer_also_clears"])
@each_pair
def test_a_process_that_has_asked_notices_fields_of_rows_that_had_only_tags(
    part: PartitionUnderTest,
    actors: Actors,
    pair: tuple[int, int],
    how: str,
    tasks: tuple[str, ...],
) -> None:
    """Planes that keep a status until the number of rows changes miss fields without a new row."""
    looker, changer = looker_and_changer(part, actors, pair)
    changer.put_labeled(IDS[:1])
    announces = looker if how == "looker_announces" else changer
    announces.put(IDS[1:], tags=[{"v": 1}, {"v": 2}])
    for task in tasks:
        looker.claim(task, batch_size=1)
    expect_equal(looker.consumed(*tasks), True, "status with two rows that have only tags")
    for n, sample_id in enumerate(IDS[1:]):
        changer.put_labeled([sample_id])
        if how == "changer_also_clears":
            changer.clear([IDS[n]])
        expect_equal(looker.consumed(*tasks), False, "status after such a row got a field")
        for task in tasks:
            looker.claim(task, batch_size=1)
        expect_equal(looker.consumed(*tasks), True, f"status with {n + 2} rows claimed")


#: Claimed rows, more than planes count anew at each question.
CLAIMED = 300


@pytest.mark.large
@requirement("STAT-01")
@each_pair
def test_a_process_that_has_asked_notices_the_fields_of_a_row_before_many(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that keep the status of many rows until a newer row exists miss an older one."""
    looker, changer = looker_and_changer(part, actors, pair)
    changer.put(["announced"], tags=[{"v": 1}])
    changer.put_labeled([f"r{n}" for n in range(CLAIMED)])
    looker.claim("train", batch_size=CLAIMED)
    expect_equal(looker.consumed(), True, "status with all rows claimed that have fields")
    changer.put_labeled(["announced"])
    expect_equal(looker.consumed(), False, "status after the first row got its fields")


#: Rows that are open below the newest claimed ones: more than a list of gaps holds.
OPEN = 1100


@pytest.mark.large
@requirement("STAT-01")
def test_rows_before_those_that_another_process_claimed_are_unclaimed(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    """Planes that note how far a task has claimed must note all gaps, for every process."""
    part = new_partition(num_samples=OPEN + 4)
    views = [part, *(part.via(actor) for actor in actors(2))]
    ids = [f"r{n}" for n in range(OPEN + 4)]
    part.put_labeled(ids)
    part.put_labeled(ids[OPEN:], "y")
    newest = views[1].claim("train", ["x", "y"], len(ids))
    expect_ids(newest, ids[OPEN:], "rows with y")
    expect_equal([v.consumed() for v in views], [False] * 3, "status with the older rows unclaimed")
    views[2].claim("train", batch_size=OPEN)
    expect_equal([v.consumed() for v in views], [True] * 3, "status with all claimed")


@requirement("STAT-01")
@pytest.mark.parametrize("rank", [None, 0], ids=["no_rank", "one_rank"])
def test_claims_of_two_processes_add_up(
    part: PartitionUnderTest, actors: Actors, rank: int | None
) -> None:
    first, second = (part.via(actor) for actor in actors(2))
    part.put_labeled(IDS)
    first.claim("train", batch_size=2, dp_rank=rank)
    second.claim("train", batch_size=1, dp_rank=rank)
    for view in (part, first, second):
        expect_equal(view.consumed(), True, "status after two processes claimed all rows")


@requirement("STAT-01")
@each_pair
def test_rows_for_which_a_claim_of_another_process_waits_are_unclaimed(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that reserve rows for a claim that waits for more must not count them as claimed."""
    looker, changer = looker_and_changer(part, actors, pair)
    changer.put_labeled(IDS[:2])
    waiting = start_blocking_claim(looker, 3, timeout_s=2 * part.timeouts.settle)
    expect_waiting(waiting, part, "the third row", "an answer with two rows ready")
    expect_equal(changer.consumed(), False, "status with two rows for which a claim waits")
    changer.put_labeled(IDS[2:])
    expect_ids(expect_woken(waiting, looker, changer), IDS, "rows of the woken claim")
    expect_equal(changer.consumed(), True, "status with every row claimed")


@requirement("STAT-01")
@each_pair
def test_an_older_row_that_is_unclaimed_counts_beside_newer_claimed_ones(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that look only at the newest row of each writer miss an older one."""
    asks, writes = looker_and_changer(part, actors, pair)
    writes.put_labeled(["old"], "y")
    writes.put_labeled(["new"], "x", "y")
    expect_ids(writes.claim("train", ["x", "y"]), ["new"], "rows with x and y")
    expect_equal(asks.consumed("train"), False, "the status before the older row is ready:")
    writes.put_labeled(["old"], "x")
    expect_equal(asks.consumed("train"), False, "the status with an older row unclaimed:")
    expect_ids(asks.claim("train", ["x", "y"]), ["old"], "rows that became ready late")
    expect_equal(asks.consumed("train"), True, "the status once it is claimed:")


@requirement("STAT-01", leans_on=("STAT-05",))
@each_pair
def test_a_row_that_began_as_tags_counts_once_whoever_puts_its_fields(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that count rows by process may count such a row never, or for each process."""
    looker, changer = looker_and_changer(part, actors, pair)
    (third,) = (part.via(actor) for actor in actors(3)[2:])
    third.put(IDS, [{"prompt": n} for n in range(len(IDS))])
    looker.put_labeled(["done"])
    looker.claim("train")
    expect_equal(looker.consumed(), True, "status before the tagged rows have fields")
    changer.put_labeled(IDS[:2], "x")
    looker.put_labeled(IDS, "y")
    for view in (looker, changer, third):
        expect_equal(view.consumed(), False, "status with rows that began as tags unclaimed")
    changer.put_labeled(IDS[2:], "x")
    expect_ids(part.claim("train"), IDS, "rows that began as tags")
    for view in (looker, changer, third):
        expect_equal(view.consumed(), True, "status with every row claimed")


#: Rows of a large step, more than a page or a bitmap of the claimed ones holds.
STEP = [f"r{n}" for n in range(600)]


@pytest.mark.large
@requirement("STAT-01", leans_on=("STAT-05",))
@each_pair
def test_a_process_that_has_asked_notices_changes_of_a_large_step(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that keep which pages of rows are claimed must notice a row that changed in one."""
    part = new_partition(num_samples=len(STEP))
    looker, changer = looker_and_changer(part, actors, pair)
    announced = STEP[200:202]
    changer.put_labeled(STEP[:200])
    changer.put(announced, [{"prompt": n} for n in range(2)])
    changer.put_labeled(STEP[202:])

    def claim_and_ask(rows: int) -> None:
        expect_equal(looker.consumed(), False, f"status with {rows} rows unclaimed")
        expect_equal(len(looker.claim(batch_size=len(STEP)).sample_ids), rows, "rows of a claim")
        expect_equal(looker.consumed(), True, "status with every row claimed")

    claim_and_ask(len(STEP) - 2)
    for sample_id in announced:
        changer.put_labeled([sample_id])
        claim_and_ask(1)
    changer.clear(STEP[300:303])
    changer.put_labeled(["new0", "new1", "new2"])
    claim_and_ask(3)

"""CLAIM-02, CLAIM-03, CLAIM-12: tasks are the same in each process, and ranks share their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from rlconform.certify.assertions.expect import expect, expect_equal, is_rejected
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import TASKS, PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.registrations import TASKS_REGISTERED_AGAIN
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer
from rlconform.contract import DataPlaneClient

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("CLAIM-03", leans_on=("STAT-01",))
@each_pair
@pytest.mark.parametrize("tasks", TASKS_REGISTERED_AGAIN.values(), ids=TASKS_REGISTERED_AGAIN)
def test_a_task_is_the_same_for_processes_that_register_in_another_order(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], tasks: Sequence[str]
) -> None:
    """Clients that send a task as its place in a list may each have a list of their own."""
    looker, changer = looker_and_changer(part, actors, pair)
    looker.register()
    changer.register(tasks=tasks)
    views = [changer, looker]
    for step, (first, second) in enumerate((views, views[::-1])):
        ids = [f"step{step}_{i}" for i in IDS]
        second.put_labeled(ids)
        expect_ids(first.claim("train"), ids, f"rows of step {step} that 'train' claims")
        again = second.claim("train", batch_size=len(ids)).sample_ids
        expect_equal(again, [], "rows that 'train' claims again from another process")
        expect(not second.consumed("prev_lp"), "'prev_lp' not to have claimed", "status True")
        expect_ids(second.claim("prev_lp"), ids, f"rows of step {step} that 'prev_lp' claims")
        again = first.claim("prev_lp", batch_size=len(ids)).sample_ids
        expect_equal(again, [], "rows that 'prev_lp' claims again from another process")
        expect(first.consumed("train", "prev_lp"), "all rows claimed by both tasks", "status False")


#: Tasks of the second step, which follow others in the list, or come in another order.
NEXT_TASKS = {
    "one_before": ("ref_lp", "prev_lp", "train"),
    "one_between": ("prev_lp", "ref_lp", "train"),
    "another_order": ("prev_lp", "train"),
    "one_in_place": ("ref_lp", "train"),
}


@requirement("CLAIM-03", leans_on=("STAT-01", "REG-03"))
@each_pair
@pytest.mark.parametrize("tasks", NEXT_TASKS.values(), ids=NEXT_TASKS)
def test_a_process_claims_for_its_task_after_another_has_registered_others(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], tasks: Sequence[str]
) -> None:
    """Clients that send a task as its place in the list may keep the list of the step before."""
    looker, changer = looker_and_changer(part, actors, pair)
    changer.put_labeled(IDS)
    for task in ("prev_lp", "train"):
        expect_ids(looker.claim(task), IDS, f"rows that {task!r} claims in the first step")
    changer.clear(IDS)
    changer.register(tasks=tasks)
    changer.put_labeled(IDS, version=1)
    for number, task in enumerate(tasks):
        claims, other = (looker, changer) if number % 2 == 0 else (changer, looker)
        expect_ids(claims.claim(task), IDS, f"rows that {task!r} claims in the second step")
        again = other.claim(task, batch_size=len(IDS)).sample_ids
        expect_equal(again, [], f"rows that {task!r} claims again from another process")
        for view in (looker, changer):
            done = view.consumed(*tasks)
            expect(done is (task == tasks[-1]), f"the status of {tasks} after {task!r}", done)


@requirement("CLAIM-02", leans_on=("REG-08",))
@each_pair
def test_a_task_that_another_adds_claims_what_the_others_have_claimed(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that take rows off their queues once every task has them have none for a new task."""
    looker, changer = looker_and_changer(part, actors, pair)
    looker.put_labeled(IDS)
    for task in TASKS:
        expect_ids(changer.claim(task), IDS, f"rows that {task!r} claims")
    changer.register(tasks=[*TASKS, "added"])
    if is_rejected(lambda: looker.expect_labeled(IDS)):
        return  # the registration dropped the rows, which REG-08 judges
    expect_ids(looker.claim("added"), IDS, "rows that a task claims which was added since")


@requirement("CLAIM-04")
@each_pair
def test_a_rank_is_served_however_far_another_is_behind(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that deal rows to ranks in equal shares must not wait for one that claims no more."""
    slow, fast = looker_and_changer(part, actors, pair)
    ids = [f"r{n}" for n in range(6)]
    slow.put_labeled(ids)
    claimed = slow.claim(batch_size=1, dp_rank=1).sample_ids
    for _ in ids[1:]:
        got = fast.claim(batch_size=1, dp_rank=0).sample_ids
        expect_equal(len(got), 1, f"rows of rank 0, with {len(ids) - len(claimed)} ready")
        claimed = [*claimed, *got]
    expect_equal(sorted(claimed), ids, "rows of both ranks")


@requirement("CLAIM-12", leans_on=("LIFE-02", "CLAIM-04"))
@pytest.mark.parametrize("blocking", [False, True], ids=["at_once", "waiting"])
def test_ready_rows_of_a_rank_that_left_go_to_the_ranks_that_stay(
    part: PartitionUnderTest, new_actor: Callable[[], DataPlaneClient], blocking: bool
) -> None:
    """Planes that deal rows to ranks as they arrive must deal them anew when one leaves."""
    ranks = [part.via(new_actor()) for _ in range(2)]
    part.put_labeled(IDS[:2])
    for rank, view in enumerate(ranks):
        view.claim(batch_size=1, dp_rank=rank)
    more = [f"more{n}" for n in range(6)]
    part.put_labeled(more)
    stays, leaves = ranks
    leaves.client.close()
    claimed = stays.claim(batch_size=len(more), dp_rank=0, blocking=blocking)
    expect_ids(claimed, more, "rows that the other rank claims")
    expect(part.consumed(), "every row claimed", "status False")

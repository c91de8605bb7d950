"""CLAIM-05 to 07: claims of several processes that wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_equal,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    expect_timeout,
    expect_waiting,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.long_timeouts import (
    HOURS_S,
    NARROW_S,
    check_long_timeouts,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.two_processes import each_pair, looker_and_changer
from rlconform.certify.threads import CLOCK_TOLERANCE_S, BackgroundCall
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]

#: Seconds without a call of a process that waits in a claim.
IDLE_S = 6.0


@pytest.mark.large
@requirement("CLAIM-05", leans_on=("CLAIM-06",))
@pytest.mark.parametrize("timeouts", [NARROW_S, HOURS_S], ids=["narrow", "hours"])
def test_claims_of_an_attached_process_that_may_wait_for_long_wait(
    part: PartitionUnderTest, actors: Actors, timeouts: list[float]
) -> None:
    """Messages from an attached process may hold a time in fewer bits than the owner has."""
    (actor,) = actors(1)
    check_long_timeouts(part.via(actor), part, timeouts)


@requirement("CLAIM-05", leans_on=("CLAIM-02",))
@pytest.mark.parametrize("at_once", [1, 2])
def test_rows_that_trickle_in_for_two_processes_go_to_one_of_them(
    part: PartitionUnderTest, actors: Actors, at_once: int
) -> None:
    """Planes that deal new rows to all who wait may leave each of them with too few."""
    timeout_s = 3 * part.timeouts.operation
    waiting = [start_blocking_claim(part.via(actor), 4, timeout_s) for actor in actors(2)]
    for claim in waiting:
        expect_waiting(claim, part, "four rows", "an answer before there was any row")
    ids = [f"r{n}" for n in range(8)]
    for start in range(0, 4, at_once):
        part.put_labeled(ids[start : start + at_once])
    deadline = time.monotonic() + part.timeouts.settle + part.call_s
    while not any(claim.returned_within(0.02) for claim in waiting):
        late = time.monotonic() > deadline
        expect(not late, "one of two claims of four rows to return once four are there", "neither")
    part.put_labeled(ids[4:])
    claimed: list[str] = []
    for claim in waiting:
        meta, _ = claim.result(part.timeouts.settle + part.call_s)
        got = [] if meta is None else meta.sample_ids
        expect(len(got) == 4, "each of two claims of four rows to get four", got)
        claimed += got
    expect_equal(sorted(claimed), ids, "rows of the two claims")


@requirement("CLAIM-05")
@pytest.mark.parametrize("ranks", [(None, None), (0, 1)], ids=["no_ranks", "ranks"])
@pytest.mark.parametrize("older", ["few", "many"])
def test_two_processes_that_wait_for_different_fields_are_each_woken_for_their_own(
    part: PartitionUnderTest,
    actors: Actors,
    older: str,
    ranks: tuple[int | None, int | None],
) -> None:
    """Planes with one entry of waiting claims for each task forget the fields of all but one.

    Those that serve claims in the order in which they came let one wait beside its rows.
    """
    few, many, writer = (part.via(actor) for actor in actors(3))
    timeout_s = 4 * part.timeouts.settle
    wide = partial(many.claim, "train", ["x", "y"], 2, blocking=True, timeout_s=timeout_s)
    starts = {
        "few": lambda: start_blocking_claim(few, 2, timeout_s, ranks[0]),
        "many": lambda: BackgroundCall(partial(wide, dp_rank=ranks[1]), "the claim for x and y"),
    }
    waiting = {}
    for name in sorted(starts, reverse=older == "many"):
        waiting[name] = starts[name]()
        expect_waiting(waiting[name], part, "two rows", "an answer with no row ready")
    writer.put_labeled(IDS[:2], "x")
    expect_ids(expect_woken(waiting["few"], few, writer), IDS[:2], "rows of the claim for x")
    writer.put_labeled(["v_g0", "v_g1"], "x", "y")
    woken = waiting["many"].result(many.call_s + part.timeouts.settle)
    expect_ids(woken, ["v_g0", "v_g1"], "rows of the claim for x and y")


@requirement("CLAIM-05", leans_on=("REG-03",))
@pytest.mark.parametrize("num_samples", [1, 3, 300])
def test_a_claim_that_waits_is_woken_after_another_process_has_registered_the_partition(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, num_samples: int
) -> None:
    """Planes that make new tables for another num_samples must take the waiting claims along."""
    part = new_partition(num_samples=3)
    waiter, driver = (part.via(actor) for actor in actors(2))
    driver.put_labeled(IDS)
    expect_ids(waiter.claim("train"), IDS, "rows of the step before")
    driver.clear(IDS)
    waiting = start_blocking_claim(waiter, 2, timeout_s=4 * part.timeouts.settle)
    expect_waiting(waiting, part, "two rows", "an answer with no row ready")
    driver.register(num_samples=num_samples)
    driver.put_labeled(["v_g0", "v_g1"])
    woken = expect_woken(waiting, waiter, driver)
    expect_ids(woken, ["v_g0", "v_g1"], "rows put after the registration")


@requirement("CLAIM-05", leans_on=("CLAIM-12",))
@pytest.mark.parametrize("dp_rank", [0, 3])
def test_equal_ranks_of_two_tasks_are_both_woken(
    part: PartitionUnderTest, actors: Actors, dp_rank: int
) -> None:
    """Rank 0 of the trainer and of the reference policy wait at once, each in its own process."""
    first, second, writer = (part.via(actor) for actor in actors(3))
    timeout_s = 4 * part.timeouts.settle

    def start(view: PartitionUnderTest, task: str) -> BackgroundCall:
        return BackgroundCall(
            lambda: view.claim(
                task, batch_size=2, blocking=True, timeout_s=timeout_s, dp_rank=dp_rank
            ),
            f"the claim of {task!r}",
        )

    waiting = [start(first, "train"), start(second, "prev_lp")]
    for one in waiting:
        early = one.returned_within(part.timeouts.quiet)
        expect_equal(early, False, "whether a claim returns with no row ready:")
    writer.put_labeled(IDS[:2])
    for one, task in zip(waiting, ("train", "prev_lp"), strict=True):
        try:
            meta = one.result(timeout_s + part.call_s)
        except TimeoutError as error:
            due = f"the claim of {task!r} that waited to get its rows"
            raise ContractViolation(due, f"TimeoutError after {one.seconds:.1f} s") from error
        expect_ids(meta, IDS[:2], f"rows that {task!r} claims")


@requirement("CLAIM-05", leans_on=("CLAIM-06",))
def test_a_claim_is_woken_though_another_process_gave_up_and_is_silent(
    part: PartitionUnderTest, actors: Actors
) -> None:
    """Planes that wake one waiter after the other stop at one whose claim has timed out."""
    silent, waiter, writer = (part.via(actor) for actor in actors(3))
    for batch_size in (2, 1):
        expect_timeout(silent, batch_size, timeout_s=0.2)
    waiting = start_blocking_claim(waiter, 2, timeout_s=4 * part.timeouts.settle)
    expect_waiting(waiting, part, "two rows", "an answer with no row ready")
    writer.put_labeled(IDS[:2])
    expect_ids(expect_woken(waiting, waiter, writer), IDS[:2], "rows put during the wait")


@requirement("CLAIM-05", leans_on=("LIFE-06",))
def test_a_process_that_attaches_during_a_wait_wakes_the_claim(
    part: PartitionUnderTest, new_actor: Callable[[], DataPlaneClient]
) -> None:
    """Planes whose waiting claims ask the processes that they know hear nothing of a new one."""
    waiting = start_blocking_claim(part, 2, timeout_s=part.timeouts.start)
    expect_waiting(waiting, part, "two rows", "an answer with no row ready")
    late = part.via(new_actor())
    late.put_labeled(IDS[:2])
    expect_ids(expect_woken(waiting, part, late), IDS[:2], "rows that the new process has put")


@requirement("CLAIM-05", leans_on=("LIFE-06",))
def test_a_process_that_has_put_rows_wakes_a_process_that_attached_since(
    part: PartitionUnderTest,
    actors: Actors,
    new_actor: Callable[[], DataPlaneClient],
) -> None:
    """A producer that learns who waits at its first put must learn of those that come later."""
    (producer,) = (part.via(actor) for actor in actors(1))
    producer.put_labeled(["before"])
    expect_ids(part.claim("train"), ["before"], "rows put before the other process attached")
    late = part.via(new_actor())
    waiting = start_blocking_claim(late, 1, timeout_s=4 * part.timeouts.settle)
    expect_waiting(waiting, part, "a row", "an answer with no row ready")
    producer.put_labeled(IDS[:1])
    expect_ids(expect_woken(waiting, late, producer), IDS[:1], "rows of the process that came late")


@requirement("CLAIM-06")
@pytest.mark.parametrize("fields", [["x"], ["x", "y"]], ids=["one_field", "two_fields"])
def test_equal_claims_of_two_processes_each_wait_for_all_of_their_time(
    part: PartitionUnderTest, actors: Actors, fields: list[str]
) -> None:
    """Planes that answer the equal claims of several ranks together must not share a deadline."""
    first, second = (part.via(actor) for actor in actors(2))
    timeout_s = 2 * part.timeouts.quiet + 1

    def timed_out_after(rank: PartitionUnderTest) -> BackgroundCall:
        def claim() -> float:
            began = time.monotonic()
            try:
                meta = rank.claim("train", fields, 2, blocking=True, timeout_s=timeout_s)
            except TimeoutError:
                return time.monotonic() - began
            raise ContractViolation("TimeoutError", f"a claim of {meta.sample_ids}")

        return BackgroundCall(claim, "a claim of no rows")

    early = timed_out_after(first)
    expect(not early.returned_within(timeout_s / 2), "the first claim to wait", "its end")
    late = timed_out_after(second)
    for which, claim in (("first", early), ("second", late)):
        after = claim.result(timeout_s + part.timeouts.settle + first.call_s)
        what = f"TimeoutError of the {which} of two equal claims not before {timeout_s} s"
        expect(after >= timeout_s - CLOCK_TOLERANCE_S, what, f"after {after:.2f} s")


@requirement("CLAIM-05")
@pytest.mark.parametrize("waits", ["owner", "attached"])
def test_a_claim_of_a_process_that_only_waits_for_long_is_woken(
    part: PartitionUnderTest, actors: Actors, waits: str
) -> None:
    """Longer than an effect takes to show, and than sessions last: generation takes minutes."""
    (attached,) = (part.via(actor) for actor in actors(1))
    waiter, writer = (part, attached) if waits == "owner" else (attached, part)
    long = max(part.timeouts.settle + 1, IDLE_S)
    waiting = start_blocking_claim(waiter, 2, timeout_s=4 * long + part.timeouts.operation)
    writer.put_labeled(IDS[:1])
    early = waiting.returned_within(long)
    expect(not early, f"the claim to wait for longer than {long:g} s", "an answer with one row")
    writer.put_labeled(IDS[1:2])
    expect_ids(expect_woken(waiting, waiter, writer), IDS[:2], "rows of the woken claim")


#: Seconds after which a claim that polls looks seldom.
POLLED_S = 2.0


@pytest.mark.large
@requirement("CLAIM-05")
@each_pair
def test_a_claim_is_woken_by_rows_that_replace_as_many_cleared_ones(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that look at how many rows there are see no change after a clear and a put.

    Some do so only if the claim lacks many rows, and look at each change if it lacks few.
    """
    waiter, driver = looker_and_changer(part, actors, pair)
    old, new = ([f"{step}_g{n}" for n in range(24)] for step in "uv")
    driver.put_labeled(old)
    expect_ids(waiter.claim("train"), old, "rows of the step before")
    waiting = start_blocking_claim(waiter, len(new), timeout_s=4 * part.timeouts.settle + POLLED_S)
    early = waiting.returned_within(POLLED_S)
    expect(not early, f"the claim to wait for {len(new)} new rows", "an answer with none ready")
    driver.clear(old)
    driver.put_labeled(new)
    expect_ids(expect_woken(waiting, waiter, driver), new, "rows put in place of cleared ones")


@requirement("CLAIM-07", leans_on=("LIFE-02",))
def test_rows_of_a_client_that_left_become_ready_by_the_fields_of_another(
    part: PartitionUnderTest, actors: Actors, new_actor: Callable[[], DataPlaneClient]
) -> None:
    """Planes in which the creator of a row says that it is ready need one that stays."""
    (worker,) = (part.via(actor) for actor in actors(1))
    leaving = part.via(new_actor())
    leaving.put_labeled(IDS)
    leaving.client.close()
    worker.put_labeled(IDS, "y")
    meta = part.claim("train", ["x", "y"], len(IDS), blocking=True)
    expect_ids(meta, IDS, "rows of the client that left, with the field of another")


@requirement("CLAIM-05", leans_on=("CLAIM-07",))
@each_pair
def test_a_claim_is_woken_by_the_fields_of_rows_that_had_only_tags(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that look at new rows only must look again at those that were announced by tags."""
    waiter, changer = looker_and_changer(part, actors, pair)
    part.put(IDS, tags=[{"weight_version": 7}] * 3)
    waiting = start_blocking_claim(waiter, 3, timeout_s=4 * part.timeouts.settle)
    expect_waiting(waiting, part, "three rows", "an answer with no row ready")
    changer.put_labeled(IDS)
    expect_ids(expect_woken(waiting, waiter, changer), IDS, "rows announced before the wait")

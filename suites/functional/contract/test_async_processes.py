"""ASYNC across processes: late write-backs, failed attempts, and hundreds of groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from rlconform.certify.assertions.expect import ContractViolation, expect
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.async_groups import (
    GROUP_SIZE,
    expect_gone,
    expect_whole,
    put_group,
    row_ids,
)
from rlconform.certify.scenarios.labeled_rows import labeled_column
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import run_concurrently
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]

#: Prompts whose first attempt fails, and groups of the check that uses a partition for long.
PROMPTS, GROUPS = 6, 200
#: Groups that exist at a time; a quarter of the groups is compared with another one.
LIVE, QUARTER = 2, 4
#: The last groups may take this many times as long as the first ones, and this many seconds more.
SLOWER, SLACK_S = 3, 0.01


@pytest.mark.large
@requirement("ASYNC-04")
def test_a_write_back_after_the_clear_brings_nothing_back(
    part: PartitionUnderTest, actors: Actors
) -> None:
    rank, rollout = (part.via(actor) for actor in actors(2))
    for group in ("stale", "stays"):
        put_group(rollout, group, 0)
    expect_whole(rank, ["stale", "stays"], "x")  # as a rank that computes on it
    part.clear(row_ids("stale"))
    try:
        rank.put_labeled([*row_ids("stale"), *row_ids("stays")], "y")
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may refuse it with any error
        rank.put_labeled(row_ids("stays"), "y")
    for view in (part, rank, rollout):
        expect_gone(view, "stale", "x")
        expect_whole(view, ["stays"], "x", "y")
    part.clear(row_ids("stale"))
    for view in (part, rank, rollout):
        expect_gone(view, "stale", "x", "y")
        expect_whole(view, ["stays"], "x", "y")


@pytest.mark.large
@requirement("ASYNC-05")
@pytest.mark.parametrize("written", [0, 1, GROUP_SIZE], ids=["none", "a_part", "all"])
def test_a_failed_attempt_is_cleared_and_the_next_one_stays(
    part: PartitionUnderTest, actors: Actors, written: int
) -> None:
    failing, other = (part.via(actor) for actor in actors(2))
    for n in range(PROMPTS):
        failed, following = f"p{n}", f"p{n}-r1"
        ids = row_ids(failed)
        if written:
            some = ids[-written:]
            failing.put(some, x=labeled_column(part.id, some, "x"))
        clear = partial(part.clear, ids)
        put = partial(put_group, other, following, n)
        if n % 3 == 0:
            clear()
            put()
        elif n % 3 == 1:
            put()
            clear()
        else:
            run_concurrently([clear, put], part.timeouts.check / 2, "driver and next attempt")
        failing.clear(ids)  # as the rollout process does whose put has failed
    for view in (part, failing, other):
        expect_whole(view, [f"p{n}-r1" for n in range(PROMPTS)], "x")
        for n in range(PROMPTS):
            expect_gone(view, f"p{n}", "x")


@pytest.mark.large
@requirement("ASYNC-06")
def test_hundreds_of_groups_pass_through_one_registration(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    part = new_partition(num_samples=GROUP_SIZE)
    (rollout,) = (part.via(actor) for actor in actors(1))
    seconds = list(pass_groups(part, rollout))
    quarter = max(1, len(seconds) // QUARTER)
    first, last = min(seconds[:quarter]), min(seconds[-quarter:])  # others may slow down the rest
    limit = SLOWER * first + SLACK_S
    expect(
        last <= limit,
        f"a group of the last {quarter} to take at most {1e3 * limit:.0f} ms, as the fastest of "
        f"the first {quarter} took {1e3 * first:.0f} ms",
        f"{1e3 * last:.0f} ms for the fastest of the last ones",
    )


def pass_groups(part: PartitionUnderTest, rollout: PartitionUnderTest) -> Iterator[float]:
    """Put, stamp, extend, read and clear one group after the other; yield the seconds of each."""
    live: list[str] = []
    for n in part.rounds(GROUPS):
        started = time.monotonic()
        group = f"p{n}"
        ids = row_ids(group)
        rollout.put_labeled(ids, "x", tags=[{"weight_version": n} for _ in ids])
        part.put(ids, [{"reward": float(n)} for _ in ids])
        part.put_labeled(ids, "y")
        live.append(group)
        part.expect_labeled([i for each in live for i in row_ids(each)], "x", "y")
        if len(live) > LIVE:
            part.clear(row_ids(live.pop(0)))
        yield time.monotonic() - started

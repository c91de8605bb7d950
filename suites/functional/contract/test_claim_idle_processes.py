"""CLAIM-06, 08: processes that do nothing for long, or stand still while they wait in a claim."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect, expect_column, expect_equal, leaning_on
from rlconform.certify.durability.nemeses import held
from rlconform.certify.isolation.client_actor import ClientActor
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.scenarios.consumers import (
    expect_timeout,
    expect_waiting,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]

#: Seconds after which queues and key-value stores have ended a lease: most after 10 or 30, Kafka's
#: after 45, some after a minute.
LEASED_S = 62.0
#: Elements of a row that planes keep apart from small ones.
WIDE = 300_000
#: Processes whose claims wait for long, and seconds between their starts: those that look at rows
#: every few seconds by then look at different times.
WAITERS, APART_S = 3, 1.3
#: Seconds that a claim waits whose process stands still.
STOPPED_S = 2.0


@requirement("CLAIM-06", leans_on=("CLAIM-02",))
@pytest.mark.parametrize("rows", [2, 3], ids=["as_many", "more"])
def test_a_process_that_is_stopped_beyond_its_claims_time_takes_no_rows_with_it(
    part: PartitionUnderTest, plane: PlaneSession, actors: Actors, rows: int
) -> None:
    """A claim that looks at its deadline after it took its rows loses them.

    A full host or a page of swap stops a process for seconds; rows come meanwhile.
    """
    waiter, writer = (part.via(actor) for actor in actors(2))
    if plane.hosts:
        pytest.skip("the process to stop may be on another host")
    (remote, _) = plane.actors().take(2)
    pid = remote.ask("its pid", 0.0, ClientActor.pid)
    waiting = start_blocking_claim(waiter, 2, timeout_s=part.timeouts.quiet + STOPPED_S)
    expect_waiting(waiting, part, "two rows", "an answer with no row ready")
    with held(pid):
        writer.put_labeled(IDS[:rows])
        early = waiting.returned_within(STOPPED_S + 0.5)
    expect(not early, "no answer of a process that is stopped", "an answer")
    meta, _ = waiting.result(part.call_s)
    ids = [] if meta is None else list(meta.sample_ids)
    expect(len(ids) in (0, 2), "a claim of two rows to return two, or to time out", str(ids))
    ids += writer.claim("train", batch_size=3).sample_ids
    expect_equal(sorted(ids), IDS[:rows], "rows that the stopped claim or a later one returned")


@pytest.mark.large
@requirement("CLAIM-08", leans_on=("CLAIM-05", "TAG-01", "STAT-02"), patience=200)
def test_what_a_process_did_stays_though_it_does_nothing_for_long(
    part: PartitionUnderTest, actors: Actors, new_actor: Callable[[], DataPlaneClient]
) -> None:
    """A trainer computes for minutes between its calls; a lease that ends gives its rows away.

    Its rows stay, and the tags of rows that are to come, and the rows of a process that has left;
    a claim that waits all the time is woken. What a process had claimed that left is
    claimed for one that comes later. It still clears what it has put: another process that puts
    rows takes over no rows of it. A clear that it made long before drops no row put since.
    """
    idle, other, *waiters = (part.via(actor) for actor in actors(2 + WAITERS))
    gone = part.via(new_actor())
    gone.put_labeled(["of_the_leaver"])
    expect_ids(gone.claim("prev_lp"), ["of_the_leaver"], "rows that a process claims and leaves")
    gone.client.close()
    wide = torch.arange(3 * WIDE).reshape(3, WIDE)
    idle.put_labeled(IDS)
    idle.put(IDS, wide=wide)
    idle.put(["announced"], tags=[{"v": 7}])
    idle.put_labeled(["again"])
    idle.clear(["again"])
    other.put_labeled(["again"], version=1)
    mine = [*IDS, "of_the_leaver", "again"]
    claimed = idle.claim("train", batch_size=len(mine))  # its last call: no other one confirms it
    expect_ids(claimed, mine, "rows of the process that does nothing for long")
    long_s = LEASED_S + part.timeouts.operation
    waiting = []
    for waiter in waiters:
        waiting.append(start_blocking_claim(waiter, 1, timeout_s=2 * long_s))
        early = waiting[-1].returned_within(APART_S)
        expect(not early, "a claim to wait for a row", "an answer with none ready")
    expect_timeout(other, 1, timeout_s=LEASED_S)
    new = ["announced", *[f"of_the_other{n}" for n in range(1, WAITERS)]]
    other.put_labeled(new)
    claims = zip(waiting, waiters, strict=True)
    woken = [expect_woken(claim, waiter, other) for claim, waiter in claims]
    tags = {
        i: own for meta in woken for i, own in zip(meta.sample_ids, meta.tags or [{}], strict=True)
    }
    expect_equal([i for i in tags if i in mine], [], "rows claimed once more")
    expect_equal(sorted(tags), sorted(new), "rows put after a long wait")
    with leaning_on("TAG-01"):
        expect_equal(tags["announced"], {"v": 7}, "tags of a row that was announced long before")
    expect_equal(other.claim("train", batch_size=5).sample_ids, [], "rows claimed once more")
    with leaning_on("STAT-02"):
        for who in (idle, other, part):
            expect_equal(who.consumed("train"), True, "the status once all rows are claimed:")
    late = part.via(new_actor())
    theirs = late.claim("prev_lp", batch_size=len(mine) + len(new))
    unclaimed = [*IDS, "again", *new]
    expect_ids(theirs, unclaimed, "rows of the task whose only process had left long before")
    other.expect_labeled([*IDS, "of_the_leaver"])
    other.expect_labeled(["again"], version=1)
    expect_column(other.get(IDS, "wide"), "wide", list(wide))
    with leaning_on("CLEAR-03"):
        idle.clear(None)
        part.expect_absent(IDS)
        part.expect_labeled(["of_the_leaver"])
        part.expect_labeled(["again"], version=1)

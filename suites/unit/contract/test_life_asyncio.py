"""LIFE-05: a client works inside an asyncio event loop, where async actors use it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import expect_waiting
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.threads import BackgroundCall

IDS = ["u0_g0", "u0_g1", "u1_g0"]


def round_trip(part: PartitionUnderTest, version: int) -> None:
    part.put_labeled(IDS, "x", "y", version=version)
    part.expect_labeled(IDS, "x", "y", version=version)


@requirement("LIFE-05")
def test_a_client_works_inside_a_running_event_loop(part: PartitionUnderTest) -> None:
    async def step() -> None:
        round_trip(part, version=0)  # blocks the event loop until it returns
        expect_ids(part.claim("train"), IDS, "rows claimed inside an event loop")

    inside = BackgroundCall(lambda: asyncio.run(step()), "a round trip inside an event loop")
    inside.result(part.timeouts.check / 2)
    round_trip(part, version=1)  # and outside, after that loop is closed


@requirement("LIFE-05")
def test_a_client_works_in_a_thread_while_the_event_loop_is_blocked(
    part: PartitionUnderTest,
) -> None:
    async def step() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(round_trip, part, 0).result()  # blocks the loop, as a computation would

    busy = BackgroundCall(lambda: asyncio.run(step()), "a round trip beside a busy event loop")
    busy.result(part.timeouts.check / 2)
    expect_ids(part.claim("train"), IDS, "rows put beside a busy event loop")


@requirement("LIFE-05")
def test_a_claim_waits_inside_a_running_event_loop(part: PartitionUnderTest) -> None:
    async def waiting() -> None:
        meta = part.claim(batch_size=3, blocking=True, timeout_s=part.timeouts.operation)
        expect_ids(meta, IDS, "rows claimed inside an event loop")

    claim = BackgroundCall(lambda: asyncio.run(waiting()), "a claim inside an event loop")
    expect_waiting(claim, part, "rows", "an answer without them")
    part.put_labeled(IDS)
    claim.result(part.call_s)

"""CLAIM across processes: exactly once, and woken by whoever produces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rlconform.certify.evidence.expect import ContractViolation, expect
from rlconform.certify.evidence.together import Background, together
from rlconform.certify.marks import requirement
from rlconform.certify.scenes.partition import Partition, expect_ids
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("CLAIM-05")
@pytest.mark.parametrize("waits", ["owner", "attached"])
def test_a_blocked_claim_wakes_by_what_others_put(
    part: Partition, actors: Actors, waits: str
) -> None:
    first, second, third = (part.via(actor) for actor in actors(3))
    waiter, first = (part, first) if waits == "owner" else (third, part)
    settle = part.timeouts.settle
    waiting = Background(  # one that sleeps through its rows ends soon, and frees its process
        lambda: waiter.claim(batch_size=3, blocking=True, timeout_s=2 * settle), "the blocked claim"
    )
    first.put_payload(IDS[:2])
    early = waiting.finished.wait(part.timeouts.quiet)
    expect(not early, "the claim to wait for the third row", "an answer with two rows ready")
    second.put_payload(IDS[2:])
    try:
        expect_ids(waiting.result(settle), IDS, "rows of the woken claim")
    finally:
        waiting.finished.wait(2 * settle)


@requirement("CLAIM-06")
def test_an_attached_clients_claim_times_out_having_claimed_nothing(
    part: Partition, actors: Actors
) -> None:
    (attached,) = (part.via(actor) for actor in actors(1))
    part.put_payload(IDS[:2])
    timeout_s = 0.5
    waiting = Background(
        lambda: attached.claim(batch_size=3, blocking=True, timeout_s=timeout_s),
        "the blocked claim",
    )
    try:
        came = waiting.result(timeout_s + part.timeouts.settle)
    except TimeoutError:
        expect_ids(attached.claim(batch_size=2), IDS[:2], "rows still claimable after the timeout")
    else:
        raise ContractViolation("TimeoutError", f"a claim of {came.sample_ids}")


@requirement("CLAIM-02")
def test_each_row_is_claimed_once_by_processes(
    new_partition: Callable[..., Partition], actors: Actors
) -> None:
    rows = 96
    part = new_partition(num_samples=rows)
    ids = [f"r{i}" for i in range(rows)]
    consumers = [part.via(actor) for actor in actors(4)]

    def produce() -> None:
        for start in range(0, rows, 8):
            part.put_payload(ids[start : start + 8])

    producer = Background(produce, "the producer")

    def consume(consumer: Partition) -> list[str]:
        claimed: list[str] = []
        while True:
            over = producer.finished.is_set()
            came = consumer.claim(batch_size=5).sample_ids
            claimed += came
            if over and not came:
                return claimed
            if not came:
                producer.give_way()

    results = together([lambda c=c: consume(c) for c in consumers], part.timeouts.check, "consumer")
    producer.result(part.timeouts.operation)
    claims = Counter(i for result in results for i in result)
    twice = sorted(i for i, n in claims.items() if n > 1)
    lost = sorted(set(ids) - set(claims))
    expect(not twice, "no row claimed twice", twice)
    expect(not lost, "no row lost", lost)

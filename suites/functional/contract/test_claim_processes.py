"""CLAIM across processes: exactly once, and woken by whoever produces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from rlconform.certify.evidence.expect import ContractViolation, expect, expect_equal
from rlconform.certify.evidence.together import CLOCK_TOLERANCE_S, Background, together
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
        expect(
            waiting.seconds >= timeout_s - CLOCK_TOLERANCE_S,
            f"TimeoutError not before {timeout_s} s",
            f"after {waiting.seconds:.3f} s",
        )
        expect_ids(attached.claim(batch_size=2), IDS[:2], "rows still claimable after the timeout")
    else:
        raise ContractViolation("TimeoutError", f"a claim of {came.sample_ids}")


def claims_of_four(
    part: Partition, ids: Sequence[str], actors: Actors, *, by_rank: bool
) -> Counter[str]:
    """Claims by id of four processes, each as a rank of its own or as none, beside a producer."""
    consumers = [part.via(actor) for actor in actors(4)]

    def produce() -> None:
        for start in range(0, len(ids), 8):
            part.put_payload(ids[start : start + 8])

    producer = Background(produce, "the producer")

    def consume(consumer: Partition, rank: int) -> list[str]:
        claimed: list[str] = []
        while True:
            over = producer.finished.is_set()
            came = consumer.claim(batch_size=5, dp_rank=rank if by_rank else None).sample_ids
            claimed += came
            if over and not came:
                return claimed
            if not came:
                producer.give_way()

    calls = [partial(consume, consumer, rank) for rank, consumer in enumerate(consumers)]
    results = together(calls, part.timeouts.check, "consumer")
    producer.result(part.timeouts.operation)
    return Counter(i for result in results for i in result)


def expect_once(claims: Counter[str], ids: Sequence[str]) -> None:
    """Each of ``ids`` was claimed once, and nothing else."""
    twice = sorted(i for i, n in claims.items() if n > 1)
    lost = sorted(set(ids) - set(claims))
    expect(not twice, "no row claimed twice", twice)
    expect(not lost, "no row lost", lost)
    expect_equal(sorted(claims), sorted(ids), "rows claimed")


@requirement("CLAIM-02")
def test_each_row_is_claimed_once_by_processes(
    new_partition: Callable[..., Partition], actors: Actors
) -> None:
    ids = [f"r{i}" for i in range(96)]
    part = new_partition(num_samples=len(ids))
    expect_once(claims_of_four(part, ids, actors, by_rank=False), ids)


@requirement("CLAIM-12")
def test_each_row_is_claimed_once_by_ranks(
    new_partition: Callable[..., Partition], actors: Actors
) -> None:
    ids = [f"r{i}" for i in range(64)]
    part = new_partition(num_samples=len(ids))
    expect_once(claims_of_four(part, ids, actors, by_rank=True), ids)


@requirement("CLAIM-06")
def test_claims_that_time_out_beside_others_take_no_row_along(
    new_partition: Callable[..., Partition], actors: Actors
) -> None:
    ids = [f"r{i}" for i in range(60)]
    part = new_partition(num_samples=len(ids))

    def produce() -> None:
        for sample_id in ids:  # one by one: a claim of four finds some of its rows, and waits
            part.put_payload([sample_id])

    producer = Background(produce, "the producer")

    def consume(consumer: Partition) -> list[str]:
        claimed: list[str] = []
        over = False
        while not over:
            over = producer.finished.is_set()
            try:
                claimed += consumer.claim(batch_size=4, blocking=True, timeout_s=0.02).sample_ids
                over = False
            except TimeoutError:
                continue
        return claimed

    calls = [partial(consume, part.via(actor)) for actor in actors(3)]
    results = together(calls, part.timeouts.check, "consumer")
    producer.result(part.timeouts.operation)
    rest = part.claim_all()
    expect_once(Counter([*rest, *(i for result in results for i in result)]), ids)


@requirement("CLAIM-07")
def test_a_row_whose_last_fields_come_at_once_is_claimed_once(
    part: Partition, actors: Actors
) -> None:
    first, second, consumer = (part.via(actor) for actor in actors(3))
    for turn in range(10):
        ids = [f"{sample_id}_{turn}" for sample_id in IDS]
        part.put_payload(ids, "x")
        calls = [
            partial(first.put_payload, ids, "y"),
            partial(second.put_payload, ids, "z"),
            partial(consumer.claim_all, "train", ["x", "y", "z"]),
        ]
        *_, early = together(calls, part.timeouts.check / 2, "writer or claimer")
        claims = Counter([*early, *part.claim_all("train", ["x", "y", "z"])])
        expect_equal(claims, Counter(ids), "claims by id, two writers bringing the last fields")

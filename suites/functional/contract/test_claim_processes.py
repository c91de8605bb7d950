"""CLAIM across processes: exactly once, and woken by whoever produces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rlconform.certify.expect import (
    expect,
)
from rlconform.certify.marks import requirement
from rlconform.certify.partition import Partition, expect_ids
from rlconform.certify.together import Background, together
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("CLAIM-05")
def test_a_blocked_claim_wakes_by_what_others_put(part: Partition, actors: Actors) -> None:
    first, second = (part.via(actor) for actor in actors(2))
    waiting = Background(lambda: part.claim(batch_size=3, blocking=True), "the blocked claim")
    first.put_payload(IDS[:2])
    early = waiting.finished.wait(part.timeouts.quiet)
    expect(not early, "the claim to wait for the third row", "an answer with two rows ready")
    second.put_payload(IDS[2:])
    expect_ids(waiting.result(part.timeouts.settle), IDS, "rows of the woken claim")


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

    results = together([lambda c=c: consume(c) for c in consumers], part.timeouts.check, "consumer")
    producer.result(part.timeouts.operation)
    claims = Counter(i for result in results for i in result)
    twice = sorted(i for i, n in claims.items() if n > 1)
    lost = sorted(set(ids) - set(claims))
    expect(not twice, "no row claimed twice", twice)
    expect(not lost, "no row lost", lost)

"""Consumers that claim beside a producer, and what became of the rows."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rlconform.certify.evidence.expect import expect, expect_equal
from rlconform.certify.evidence.together import Background, together

#: Claims once, and names the rows that came.
Claim = Callable[[], list[str]]


def claims_beside(
    producer: Background, claims: Sequence[Claim], most: int, timeout_s: float
) -> list[list[str]]:
    """All claims that were made, each until none came after the producer was over.

    A consumer that got more than ``most`` rows ends as well: some came twice, and would for ever.
    """
    stop = threading.Event()

    def consume(claim: Claim) -> list[list[str]]:
        made: list[list[str]] = []
        rows = 0
        while rows <= most and not stop.is_set():
            over = producer.finished.is_set()
            if came := claim():
                made.append(came)
                rows += len(came)
            elif over:
                break
            else:
                producer.give_way()
        return made

    try:
        results = together([partial(consume, claim) for claim in claims], timeout_s, "consumer")
    finally:
        stop.set()
    return [made for result in results for made in result]


def expect_once(claims: Iterable[Sequence[str]], ids: Sequence[str]) -> None:
    """Each of ``ids`` was claimed once, and nothing else was."""
    counted = Counter(i for claim in claims for i in claim)
    twice = sorted(i for i, n in counted.items() if n > 1)
    lost = sorted(set(ids) - set(counted))
    expect(not twice, "no row claimed twice", twice)
    expect(not lost, "no row lost", lost)
    expect_equal(sorted(counted), sorted(ids), "rows claimed")

"""Chooses scenarios that cover many combinations with few of them.

All combinations of looks, changes and processes are far too many. So each scenario is the best of
several random ones: the one with the most combinations that no earlier scenario covers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from random import Random
from typing import TypeVar

T = TypeVar("T")

#: Random candidates for each choice; more of them cover more, and take longer.
CANDIDATES = 24


def covering(
    random: Random, draw: Callable[[Random], T | None], targets: Callable[[T], frozenset[Hashable]]
) -> Iterator[T]:
    """Yield candidates, each of them with as many new ``targets`` as ``CANDIDATES`` draws offer.

    ``draw`` returns None for a candidate that is not possible.
    """
    covered: set[Hashable] = set()
    while True:
        drawn = [one for _ in range(CANDIDATES) if (one := draw(random)) is not None]
        if drawn:
            best = max(drawn, key=lambda one: len(targets(one) - covered))
            covered |= targets(best)
            yield best

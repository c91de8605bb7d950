"""Draws scenarios at random; ``covering`` chooses among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from rlconform.certify.interplay.scenario import (
    ALONE_CHANGES,
    CHANGES,
    FIRST_LOOKS,
    GUEST,
    GUESTS,
    IDLE,
    LAYOUTS,
    UNAWARE_CHANGES,
    WAKING,
    Change,
    InterplayScenario,
    Look,
)

#: How often the looker itself makes the second change, with what it knows from before the first.
_ANSWERS = 0.2


def draw(random: Random, groups: bool, possible: Sequence[Change] = CHANGES) -> InterplayScenario:
    """Draw a scenario, possible or not; ``groups``: whether the plane claims whole groups."""
    layouts = [each for each in LAYOUTS if groups or each != "groups"]
    guest = random.choice([*GUESTS, "none", "none", "none", "none", "late"])
    chain = random.choice([1, 2, 2, 2, 2])
    looks: Look = random.choice(FIRST_LOOKS)
    changes = tuple(random.choice(possible) for _ in range(chain))
    if looks == "wait":
        changes = (*(random.choice(IDLE) for _ in changes[1:]), random.choice(WAKING))

    def process(role: str) -> int:
        return GUEST if guest == role else random.randrange(GUEST)

    looker, changers = process("looker"), tuple(process("changer") for _ in range(chain))
    if chain > 1 and guest != "changer" and random.random() < _ANSWERS:
        changers = (changers[0], looker)
    staying = [each for each in (looker, looker, *changers, 0, 1, 2) if each != GUEST]
    return InterplayScenario(
        looks=looks,
        changes=changes,
        registers=random.choice([0, 0, *range(GUEST)]),
        writes=process("writer"),
        looker=looker,
        changers=changers,
        last=GUEST if guest == "late" else random.choice(staying),
        again=random.random() < 0.8,
        guest=guest,
        layout=random.choice(layouts),
        dtype=random.randrange(4),
        order=random.randrange(4),
    )


def draw_unaware(random: Random, groups: bool) -> InterplayScenario:
    """Draw a scenario whose first writer makes the last change, and may have missed the first.

    Every second row may be another process's.
    """
    drawn = draw(random, groups, UNAWARE_CHANGES)
    turns = random.choice([None, None, *range(GUEST)])
    changers = drawn.changers
    if len(changers) > 1 and drawn.guest not in {"changer", "writer"}:
        changers = (*changers[:-1], drawn.writes)
    return replace(drawn, changers=changers, turns=turns)


def draw_alone(random: Random, groups: bool) -> InterplayScenario:
    """Draw a scenario of one process, possible or not."""
    chain = random.choice([2, 6, 7, 8])
    looks: Look = random.choice(FIRST_LOOKS)
    changes = tuple(random.choice(ALONE_CHANGES) for _ in range(chain))
    if looks == "wait":
        changes = (*(random.choice(IDLE) for _ in changes[1:]), random.choice(WAKING))
    return InterplayScenario(
        looks=looks,
        changes=changes,
        registers=0,
        writes=0,
        looker=0,
        changers=(0,) * chain,
        last=0,
        again=random.random() < 0.8,
        layout=random.choice([each for each in LAYOUTS if groups or each != "groups"]),
        dtype=random.randrange(4),
        order=random.randrange(4),
        alone=True,
    )

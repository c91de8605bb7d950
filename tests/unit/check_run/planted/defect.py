"""How a defect is planted in the log of a right run, and which rule must find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from rlconform.events.schema import (
    Committed,
    Dropped,
    PromptDispatched,
    Resumed,
    RunEvent,
)

from ..log_builder import DRIVER, Line

Lines = list[Line]
Plant = Callable[[Lines, Random], Lines | None]


@dataclass(frozen=True)
class Defect:
    """A defect; ``plant`` returns None if the log offers no place for it."""

    plant: Plant
    rule: str

    @property
    def name(self) -> str:
        """Name of the function that plants it."""
        return self.plant.__name__


DEFECTS: list[Defect] = []


def found_by(rule: str) -> Callable[[Plant], Plant]:
    """Register a defect that this rule must find."""

    def register(plant: Plant) -> Plant:
        DEFECTS.append(Defect(plant, rule))
        return plant

    return register


def places_of(lines: Lines, kind: type[RunEvent], **fields: Any) -> list[int]:
    return [
        place
        for place, line in enumerate(lines)
        if isinstance(line.event, kind)
        and all(getattr(line.event, name) == value for name, value in fields.items())
    ]


def pick(random: Random, places: list[int]) -> int | None:
    return random.choice(places) if places else None


def changed(lines: Lines, place: int, **fields: Any) -> Lines:
    line = lines[place]
    event = msgspec.structs.replace(line.event, **fields)
    return [*lines[:place], line._replace(event=event), *lines[place + 1 :]]


def without(lines: Lines, places: list[int]) -> Lines:
    gone = set(places)
    return [line for place, line in enumerate(lines) if place not in gone]


def inserted(lines: Lines, place: int, event: RunEvent) -> Lines:
    """Insert an event of the driver before ``place``."""
    wall_ns = lines[min(place, len(lines) - 1)].wall_ns
    source = next(
        (line.source for line in reversed(lines[:place]) if line.source.role == "trainer"), DRIVER
    )
    return [*lines[:place], Line(source, event, wall_ns), *lines[place:]]


def lasting(lines: Lines, kind: type[RunEvent]) -> list[int]:
    """Places of events that no resume undoes."""
    resumed = places_of(lines, Resumed)
    return [place for place in places_of(lines, kind) if not resumed or place > resumed[-1]]


def committed_later(lines: Lines, place: int, group_id: str) -> bool:
    for line in lines[place + 1 :]:
        if isinstance(line.event, Committed) and line.event.group_id == group_id:
            return True
        if isinstance(line.event, Dropped | PromptDispatched) and line.event.group_id == group_id:
            return False
        if isinstance(line.event, Resumed):
            return False
    return False

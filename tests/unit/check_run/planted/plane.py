"""Defects of a data plane, as its calls show them."""

from __future__ import annotations

from random import Random
from typing import Any

from rlconform.events.schema import (
    PlaneOp,
)

from .defect import (
    Lines,
    changed,
    found_by,
    inserted,
    lasting,
    pick,
    places_of,
    without,
)


@found_by("plane_ops")
def get_misses_an_acknowledged_key(lines: Lines, random: Random) -> Lines | None:
    """A put is acknowledged before it is visible."""
    place = pick(random, places_of(lines, PlaneOp, op="get", status="ok"))
    if place is None:
        return None
    return changed(lines, place, keys=lines[place].event.keys[1:])


@found_by("plane_ops")
def get_returns_a_cleared_key(lines: Lines, random: Random) -> Lines | None:
    """A clear leaves data behind."""
    place = pick(random, places_of(lines, PlaneOp, op="clear", status="ok"))
    if place is None:
        return None
    asked: PlaneOp = lines[place - 1].event
    call: dict[str, Any] = {"op": "get", "op_id": 10**6, "partition": asked.partition}
    ended = PlaneOp(**call, status="ok", keys=asked.keys)
    lines = inserted(lines, place + 1, ended)
    return inserted(lines, place + 1, PlaneOp(**call, status="invoked", keys=asked.keys))


@found_by("plane_ops")
def row_is_claimed_twice(lines: Lines, random: Random) -> Lines | None:
    """Two consumers of a task claim the same row."""
    place = pick(random, places_of(lines, PlaneOp, op="put", status="ok"))
    if place is None:
        return None
    asked: PlaneOp = lines[place - 1].event
    for number in (10**6, 10**6 + 1):
        call: dict[str, Any] = {
            "op": "claim", "op_id": number, "partition": asked.partition, "task": "train",
        }  # fmt: skip
        lines = inserted(lines, place + 1, PlaneOp(**call, status="ok", keys=asked.keys))
        lines = inserted(lines, place + 1, PlaneOp(**call, status="invoked"))
    return lines


@found_by("plane_ops")
def call_never_returns(lines: Lines, random: Random) -> Lines | None:
    """The controller's thread is dead."""
    place = pick(random, lasting(lines, PlaneOp))
    if place is None:
        return None
    number = lines[place].event.op_id
    source = lines[place].source
    ends = [
        p for p in places_of(lines, PlaneOp, op_id=number, status="ok") if lines[p].source == source
    ]
    return without(lines, ends)

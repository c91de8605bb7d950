"""What a run measures, as a list of contests: pure data that the run plays turn by turn.

for contest in contests(shapes, plan):
    every target readies itself; then, round by round, each has one turn; then each cleans up
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlconform.bench.document import GROWTH_OPERATIONS, OPERATIONS
from rlconform.bench.plan import BatchShape, Plan

#: Rows of one put when a partition is filled.
CHUNK = 5_000

#: What a figure measures: the document's table, then what tells its rows apart.
Key = tuple[str | int, ...]


@dataclass(frozen=True)
class Request:
    """A method of the station, and how many client calls it may wait for."""

    method: str
    arguments: tuple[Any, ...] = ()
    calls: int = 0


@dataclass(frozen=True)
class Measurement:
    """One measurement for which all targets take turns.

    Attributes:
        title: For people who wait.
        keys: What each figure that a turn brings is a measurement of.
        repetitions: Counted turns of each target.
        turn: The request of a target's n-th turn, n from 0.
        prepare, finish: What goes before the first turn and after the last.
        shape: Name of the shape whose bytes are copied beside each turn, or "".
    """

    title: str
    keys: dict[str, Key]
    repetitions: int
    turn: Callable[[int], Request]
    prepare: Sequence[Request] = field(default_factory=list)
    finish: Sequence[Request] = field(default_factory=list)
    shape: str = ""


def measurements(shapes: Sequence[BatchShape], plan: Plan) -> list[Measurement]:
    """All contests of a run, in the order in which they are played."""
    return [
        *(_carry(shape) for shape in shapes),
        *(_claim_rate(plan, consumers) for consumers in plan.claim_rate.consumers),
        *(_growth(plan, rows) for rows in plan.growth.rows),
        _wake(plan),
    ]


def operation_key(shape: str, operation: str) -> Key:
    """Of one operation on one shape."""
    return ("operation", shape, operation)


def claim_rate_key(consumers: int) -> Key:
    """Of the rate of so many consumers."""
    return ("claim_rate", consumers)


def growth_key(operation: str, rows: int) -> Key:
    """Of one operation beside so many rows."""
    return ("growth", operation, rows)


def wake_key(since: str) -> Key:
    """Of the wake since the put's start (``from_start``) or its return (``from_return``)."""
    return ("wake", since)


def _carry(shape: BatchShape) -> Measurement:
    return Measurement(
        title=shape.name,
        keys={name: operation_key(shape.name, name) for name in OPERATIONS},
        repetitions=shape.repetitions,
        prepare=[Request("load", (shape,), calls=1)],
        turn=lambda number: Request(
            "carry", (shape.name, f"{shape.name}.{number}"), calls=len(OPERATIONS)
        ),
        finish=[Request("unload")],
        shape=shape.name,
    )


def _claim_rate(plan: Plan, consumers: int) -> Measurement:
    asked = plan.claim_rate
    return Measurement(
        title=f"claim rate of {consumers}",
        keys={"rate": claim_rate_key(consumers)},
        repetitions=asked.repetitions,
        turn=lambda _number: Request(
            "drain", (f"rate{consumers}", consumers, asked.rows, asked.batch), calls=3
        ),
    )


def _growth(plan: Plan, rows: int) -> Measurement:
    partition, batch = f"growth{rows}", plan.growth.batch
    return Measurement(
        title=f"{rows:,} rows",
        keys={name: growth_key(name, rows) for name in GROWTH_OPERATIONS},
        repetitions=plan.growth.repetitions,
        prepare=[
            Request("fill", (partition, first, min(CHUNK, rows - first), rows), calls=2)
            for first in range(0, rows, CHUNK)
        ],
        turn=lambda number: Request("slide", (partition, rows + number * batch, batch), calls=4),
        finish=[Request("empty", (partition,), calls=1)],
    )


def _wake(plan: Plan) -> Measurement:
    return Measurement(
        title="wake",
        keys={since: wake_key(since) for since in ("from_start", "from_return")},
        repetitions=plan.wake.repetitions,
        turn=lambda number: Request("wake", ("wake", number), calls=3),
    )

"""``measurements``: what a bench run measures, as data that the runner processes turn by turn.

for measurement in measurements(shapes, plan):
    every target prepares; then, round by round, each has one turn; then each cleans up
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlconform.bench.batches import describe
from rlconform.bench.document import GROWTH_OPERATIONS, OPERATIONS
from rlconform.bench.plan import BatchShape, Plan

#: Rows of one put when a partition is filled.
CHUNK = 5_000


class FigureKey(NamedTuple):
    """Where a figure is stored in a ``BenchDocument``: in ``column`` of the row, one per target."""

    table: str
    row: tuple[tuple[str, str | int], ...]
    column: str = "seconds"


@dataclass(frozen=True)
class Request:
    """A method of ``PlaneProcess``, and how many client calls it may wait for."""

    method: str
    arguments: tuple[Any, ...] = ()
    calls: int = 0


@dataclass(frozen=True)
class Measurement:
    """One measurement for which all targets take turns.

    Attributes:
        title: Shown while it runs.
        keys: Where each figure of a turn is stored, by the figure's name.
        repetitions: Counted turns of each target.
        turn: The request of a target's n-th turn, n from 0.
        prepare, finish: Requests before the first turn and after the last.
        shape: Name of the shape whose bytes are copied with each turn, or "".
    """

    title: str
    keys: dict[str, FigureKey]
    repetitions: int
    turn: Callable[[int], Request]
    prepare: Sequence[Request] = field(default_factory=list)
    finish: Sequence[Request] = field(default_factory=list)
    shape: str = ""


def measurements(shapes: Sequence[BatchShape], plan: Plan) -> list[Measurement]:
    """All measurements of a run, in order."""
    return [
        *(_carry(shape) for shape in shapes),
        *(_claim_rate(plan, consumers) for consumers in plan.claim_rate.consumers),
        *(_growth(plan, rows) for rows in plan.growth.rows),
        _wake(plan),
    ]


def _carry(shape: BatchShape) -> Measurement:
    size: dict[str, Any] = {"rows": shape.rows, "bytes": describe(shape).bytes}
    return Measurement(
        title=shape.name,
        keys={name: _key("operations", shape=shape.name, operation=name, **size)
              for name in OPERATIONS},
        repetitions=shape.repetitions,
        prepare=[Request("load", (shape,), calls=1)],
        turn=lambda number: Request(
            "carry", (shape.name, f"{shape.name}.{number}"), calls=len(OPERATIONS)
        ),
        finish=[Request("unload")],
        shape=shape.name,
    )  # fmt: skip


def _claim_rate(plan: Plan, consumers: int) -> Measurement:
    rate = plan.claim_rate
    return Measurement(
        title=f"claim rate of {consumers}",
        keys={"rate": _key("claim_rate", "rows_per_second", consumers=consumers, rows=rate.rows)},
        repetitions=rate.repetitions,
        turn=lambda _number: Request(
            "drain", (f"rate{consumers}", consumers, rate.rows, rate.batch), calls=3
        ),
    )


def _growth(plan: Plan, rows: int) -> Measurement:
    partition, batch = f"growth{rows}", plan.growth.batch
    return Measurement(
        title=f"{rows:,} rows",
        keys={name: _key("growth", operation=name, rows_in_partition=rows, batch=batch)
              for name in GROWTH_OPERATIONS},
        repetitions=plan.growth.repetitions,
        prepare=[
            Request("fill", (partition, first, min(CHUNK, rows - first), rows), calls=2)
            for first in range(0, rows, CHUNK)
        ],
        turn=lambda number: Request("slide", (partition, rows + number * batch, batch), calls=4),
        finish=[Request("empty", (partition,), calls=1)],
    )  # fmt: skip


def _wake(plan: Plan) -> Measurement:
    return Measurement(
        title="wake",
        keys={since: _key("wake", since) for since in ("from_start", "from_return")},
        repetitions=plan.wake.repetitions,
        turn=lambda number: Request("wake", ("wake", number), calls=3),
    )


def _key(table: str, column: str = "seconds", **row: str | int) -> FigureKey:
    return FigureKey(table, tuple(row.items()), column)

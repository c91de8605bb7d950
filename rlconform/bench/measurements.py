"""The measurements of a bench run. A ``Measurement`` makes its turns and its document rows.

    runner ── (measurement, "turn", number) ──▶ plane process: measurement.turn(clients, number)
           ◀── figures ──

Every target prepares; then, in each round, every target has one turn; then every target cleans up.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rlconform.bench.batches import describe, sample_ids
from rlconform.bench.client_pool import CallRefused, ClientPool
from rlconform.bench.document import (
    GROWTH_OPERATIONS,
    OPERATIONS,
    ClaimRate,
    Growth,
    OperationTimes,
    Summary,
    TargetRow,
    Wake,
)
from rlconform.bench.plan import BatchShape, Plan
from rlconform.bench.timed_client import NUMBER, WrongData

#: Figures of one turn, seconds or rows per second, by name.
Figures = dict[str, float]

#: Client calls that one method of a measurement makes at most, one after another.
MOST_CALLS = len(OPERATIONS)

#: Rows of one put when a partition is filled.
CHUNK = 5_000

#: Seconds from the request to drain until all consumers begin: more than Ray needs to reach four.
_TOGETHER_S = 0.1

#: Seconds from just before a blocking claim until the plane has certainly received it.
_SETTLE_S = 0.05

#: A plane may poll for rows at intervals. Puts are spread evenly over this many seconds, so that
#: they do not all fall on the same moment of the interval.
_SPREAD_S = 0.05
_GOLDEN = (5**0.5 - 1) / 2

_WAKE_TIMEOUT_S = 30.0


@dataclass(frozen=True, eq=False)
class Measurement(ABC):
    """A measurement in which all targets take turns; ``repetitions`` turns of each count."""

    title: str
    repetitions: int

    @property
    def steps(self) -> int:
        """How many times ``prepare`` is called."""
        return 1

    def prepare(self, clients: ClientPool, step: int) -> None:  # noqa: B027
        """Prepare for the first turn; called once for each step."""

    @abstractmethod
    def turn(self, clients: ClientPool, number: int) -> Figures:
        """Make a target's turn ``number`` (from 0) and return its figures."""

    def finish(self, clients: ClientPool, step: int) -> None:  # noqa: B027
        """Clean up after the last turn."""

    @abstractmethod
    def rows(self, found: Mapping[str, Summary], **target: Any) -> list[TargetRow]:
        """Return the document's rows, made of these figures and the fields of a ``TargetRow``."""


def measurements(shapes: Sequence[BatchShape], plan: Plan) -> list[Measurement]:
    """Return all measurements of a run, in order."""
    rate, growth = plan.claim_rate, plan.growth
    return [
        *(CarryBatch(shape.name, shape.repetitions, shape) for shape in shapes),
        *(
            DrainRows(f"claim rate of {count}", rate.repetitions, count, rate.rows, rate.batch)
            for count in rate.consumers
        ),
        *(SlideRows(f"{rows:,} rows", growth.repetitions, rows, growth.batch)
          for rows in growth.rows),
        WakeClaim("wake", plan.wake.repetitions),
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class CarryBatch(Measurement):
    """Measures a whole batch: puts it, reads it twice, claims it and clears it."""

    shape: BatchShape

    def prepare(self, clients: ClientPool, step: int) -> None:
        made = clients.producer.begin("load", self.shape)
        clients.consumer.call("expect", self.shape)
        made()
        fields = list(self.shape.fields)
        clients.producer.call("register", self.shape.name, fields, self.shape.rows)

    def turn(self, clients: ClientPool, number: int) -> Figures:
        batch = partition, label = self.shape.name, f"{self.shape.name}.{number}"
        ids = sample_ids(label, self.shape.rows)
        try:
            return {
                "put": clients.producer.call("put", *batch),
                "get": clients.consumer.call("get", *batch, True),
                "get_in_order": clients.consumer.call("get", *batch, False),
                "claim": clients.consumer.call("claim", *batch),
                "clear": clients.consumer.call("clear", partition, ids),
            }
        except CallRefused:
            _sweep(clients, partition)
            raise

    def finish(self, clients: ClientPool, step: int) -> None:
        clients.producer.call("unload")
        clients.consumer.call("unload")

    def rows(self, found: Mapping[str, Summary], **target: Any) -> list[TargetRow]:
        return [
            OperationTimes(
                **target,
                shape=self.shape.name,
                operation=operation,
                rows=self.shape.rows,
                bytes=describe(self.shape).bytes,
                seconds=found.get(operation),
            )
            for operation in OPERATIONS
        ]


@dataclass(frozen=True, eq=False)
class DrainRows(Measurement):
    """Measures several consumers that together claim ``ready`` rows, ``batch`` at a time."""

    consumers: int
    ready: int
    batch: int

    def turn(self, clients: ClientPool, number: int) -> Figures:
        partition = f"rate{self.consumers}"
        try:
            clients.producer.call("register", partition, [NUMBER], self.ready)
            clients.producer.call("put_rows", partition, 0, self.ready)
            start_at = time.monotonic() + _TOGETHER_S
            drains = [
                claimer.begin("drain", partition, self.ready, self.batch, start_at)
                for claimer in clients.claimers[: self.consumers]
            ]
            begins, ends, claimed = zip(*(drained() for drained in drains), strict=True)
            times = Counter(row for of_claimer in claimed for row in of_claimer)
            if len(times) != self.ready or times.total() != self.ready:
                raise CallRefused(
                    f"{WrongData.__name__}: {self.ready} rows were ready, {len(times)} were "
                    f"claimed, {times.total() - len(times)} of them again"
                )
        finally:
            _sweep(clients, partition)
        return {"rate": self.ready / (max(ends) - min(begins))}

    def rows(self, found: Mapping[str, Summary], **target: Any) -> list[TargetRow]:
        rate = found.get("rate")
        return [
            ClaimRate(**target, consumers=self.consumers, rows=self.ready, rows_per_second=rate)
        ]


@dataclass(frozen=True, eq=False)
class SlideRows(Measurement):
    """Measures operations on ``batch`` rows of a partition that always has about ``ready`` rows."""

    ready: int
    batch: int

    @property
    def steps(self) -> int:
        return -(-self.ready // CHUNK)

    @property
    def partition(self) -> str:
        """The name of the partition."""
        return f"growth{self.ready}"

    def prepare(self, clients: ClientPool, step: int) -> None:
        if step == 0:
            clients.producer.call("register", self.partition, [NUMBER], self.ready)
        first = step * CHUNK
        clients.producer.call("put_rows", self.partition, first, min(CHUNK, self.ready - first))

    def turn(self, clients: ClientPool, number: int) -> Figures:
        claimed, ids = clients.consumer.call("claim_rows", self.partition, self.batch)
        read = clients.consumer.call("get_rows", self.partition, ids)
        cleared = clients.consumer.call("clear", self.partition, ids)
        first = self.ready + number * self.batch
        began, ended = clients.producer.call("put_rows", self.partition, first, self.batch)
        return {"claim": claimed, "get": read, "clear": cleared, "put": ended - began}

    def finish(self, clients: ClientPool, step: int) -> None:
        clients.producer.call("clear", self.partition, None)

    def rows(self, found: Mapping[str, Summary], **target: Any) -> list[TargetRow]:
        return [
            Growth(
                **target,
                operation=operation,
                rows_in_partition=self.ready,
                batch=self.batch,
                seconds=found.get(operation),
            )
            for operation in GROWTH_OPERATIONS
        ]


class WakeClaim(Measurement):
    """Measures seconds until a consumer's blocked claim returns the row that a producer puts."""

    def turn(self, clients: ClientPool, number: int) -> Figures:
        if number == 0:
            clients.producer.call("register", self.title, [NUMBER], 1)
        returned_at = clients.consumer.begin("wait_for_row", self.title, _WAKE_TIMEOUT_S)
        clients.consumer.call("about_to_wait", _WAKE_TIMEOUT_S)
        time.sleep(_SETTLE_S + number * _GOLDEN % 1 * _SPREAD_S)
        began, returned = clients.producer.call("put_rows", self.title, number, 1)
        woke = returned_at()
        _sweep(clients, self.title)
        return {"from_start": woke - began, "from_return": woke - returned}

    def rows(self, found: Mapping[str, Summary], **target: Any) -> list[TargetRow]:
        since_start, since_return = found.get("from_start"), found.get("from_return")
        return [Wake(**target, from_start=since_start, from_return=since_return)]


def _sweep(clients: ClientPool, partition: str) -> None:
    """Clear all rows before the next turn; a plane that can't clear fails at its next clear."""
    with suppress(CallRefused):
        clients.producer.call("clear", partition, None)

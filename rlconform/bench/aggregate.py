"""``Aggregator``: figures as they come in, and the document that they add up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from rlconform.bench.batches import describe
from rlconform.bench.document import (
    GROWTH_OPERATIONS,
    OPERATIONS,
    ClaimRate,
    Growth,
    Memcpy,
    OperationTimes,
    ShapeResult,
    Summary,
    Wake,
)
from rlconform.bench.measurements import Key, claim_rate_key, growth_key, operation_key, wake_key
from rlconform.bench.plan import BatchShape, Plan
from rlconform.bench.stats import summarize


class SampleTables(TypedDict):
    """The tables of a document."""

    shapes: list[ShapeResult]
    memcpy: list[Memcpy]
    operations: list[OperationTimes]
    claim_rate: list[ClaimRate]
    growth: list[Growth]
    wake: list[Wake]


@dataclass
class Aggregator:
    """What was measured, by target and measurement; refusals in place of figures."""

    figures: dict[tuple[str, Key], list[float]] = field(default_factory=lambda: defaultdict(list))
    refusals: dict[tuple[str, Key], str] = field(default_factory=dict)
    copies: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, target: str, key: Key, values: Iterable[float]) -> None:
        """Figures of one turn."""
        self.figures[target, key].extend(values)

    def refuse(self, target: str, keys: Iterable[Key], reason: str) -> None:
        """The target has no figures for these measurements; those that it had don't count."""
        for key in keys:
            self.refusals[target, key] = reason

    def tables(
        self, targets: Sequence[str], shapes: Sequence[BatchShape], plan: Plan
    ) -> SampleTables:
        """Every measurement that has figures or a refusal, target by target."""
        described = [describe(shape) for shape in shapes]
        rate, growth = plan.claim_rate, plan.growth
        return {
            "shapes": described,
            "memcpy": [
                Memcpy(shape=name, warm=summarize(warm), fresh=summarize(fresh))
                for name, copies in self.copies.items()
                for warm, fresh in [list(zip(*copies, strict=True))]
            ],
            "operations": [
                OperationTimes(
                    target=target,
                    shape=shape.name,
                    operation=operation,
                    rows=shape.rows,
                    bytes=shape.bytes,
                    seconds=self._summary(target, key),
                    refused=self._refusal(target, key),
                )
                for shape in described
                for operation in OPERATIONS
                for target in targets
                if self._has(target, key := operation_key(shape.name, operation))
            ],
            "claim_rate": [
                ClaimRate(
                    target=target,
                    consumers=consumers,
                    rows=rate.rows,
                    rows_per_second=self._summary(target, key),
                    refused=self._refusal(target, key),
                )
                for target in targets
                for consumers in rate.consumers
                if self._has(target, key := claim_rate_key(consumers))
            ],
            "growth": [
                Growth(
                    target=target,
                    operation=operation,
                    rows_in_partition=rows,
                    batch=growth.batch,
                    seconds=self._summary(target, key),
                    refused=self._refusal(target, key),
                )
                for target in targets
                for operation in GROWTH_OPERATIONS
                for rows in growth.rows
                if self._has(target, key := growth_key(operation, rows))
            ],
            "wake": [
                Wake(
                    target=target,
                    from_start=self._summary(target, key),
                    from_return=self._summary(target, wake_key("from_return")),
                    refused=self._refusal(target, key),
                )
                for target in targets
                if self._has(target, key := wake_key("from_start"))
            ],
        }

    def _has(self, target: str, key: Key) -> bool:
        return bool(self._refusal(target, key) or self.figures.get((target, key)))

    def _summary(self, target: str, key: Key) -> Summary | None:
        values = self.figures.get((target, key))
        return summarize(values) if values and not self._refusal(target, key) else None

    def _refusal(self, target: str, key: Key) -> str:
        return self.refusals.get((target, key), "")

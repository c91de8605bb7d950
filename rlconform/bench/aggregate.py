"""``Aggregator``: collects the figures of a run and summarizes them as the rows of a document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlconform.bench.document import Memcpy, Summary
from rlconform.bench.measurement_requests import FigureKey


@dataclass
class Aggregator:
    """Figures by target and key, and refusals in place of figures."""

    figures: dict[tuple[str, FigureKey], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    refusals: dict[tuple[str, FigureKey], str] = field(default_factory=dict)
    copies: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, target: str, key: FigureKey, values: Iterable[float]) -> None:
        """Add the figures of one turn."""
        self.figures[target, key].extend(values)

    def refuse(self, target: str, keys: Iterable[FigureKey], reason: str) -> None:
        """Record that the target has no figures for these keys; earlier figures don't count."""
        for key in keys:
            self.refusals[target, key] = reason

    def tables(
        self, targets: Sequence[str], keys: Iterable[FigureKey]
    ) -> dict[str, list[dict[str, Any]]]:
        """The rows of each table of a document that have figures or a refusal."""
        rows: dict[tuple[str, Any, str], dict[str, Any]] = {}
        for key in keys:
            for target in targets:
                values, refused = self.figures.get((target, key)), self.refusals.get((target, key))
                if values or refused:
                    row = rows.setdefault((key.table, key.row, target), dict(key.row))
                    row |= {"target": target, "refused": refused or ""}
                    row[key.column] = None if refused or not values else summarize(values)
        tables: dict[str, list[dict[str, Any]]] = {
            "operations": [], "claim_rate": [], "growth": [], "wake": []
        }  # fmt: skip
        for (table, _, _), row in rows.items():
            tables[table].append(row)
        return tables

    def memcpy(self) -> list[Memcpy]:
        """The times of the memory copies made with the turns of each shape."""
        return [
            Memcpy(shape=shape, warm=summarize(warm), fresh=summarize(fresh))
            for shape, copies in self.copies.items()
            for warm, fresh in [list(zip(*copies, strict=True))]
        ]


def summarize(values: Sequence[float]) -> Summary:
    """Quantiles of the sample, linear between the nearest two.

    Raises:
        ValueError: No values.
    """
    if not values:
        raise ValueError("nothing was measured")
    low, p25, median, p75, p99, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 0.99, 1]).tolist()
    return Summary(n=len(values), median=median, p25=p25, p75=p75, p99=p99, min=low, max=high)

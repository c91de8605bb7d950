"""The sentence that opens the page of a bench run: what each plane costs, the cheapest first."""

from __future__ import annotations

from math import fsum, log

from rlconform.bench.document import BenchDocument
from rlconform.bench.report.ratios import against_memcpy
from rlconform.bench.report.tables import HEADLINES
from rlconform.bench.report.units import plain


def headline(document: BenchDocument) -> str:
    """Return the result in one sentence; planes are ordered by the mean of their log costs.

    The means are over the shapes and operations of which every plane that has figures has one. A
    plane is left out of the order if it failed, and named as such.
    """
    costs: dict[str, dict[tuple[str, str], float]] = {}
    for (target, shape, operation), ratio in against_memcpy(document).items():
        if operation in HEADLINES:
            costs.setdefault(target, {})[operation, shape] = ratio.value
    lost = [target.spec for target in document.targets if target.status == "failed"]
    names = {t.spec: t.label for t in document.targets if t.spec in costs and t.spec not in lost}
    failed = f"failed: {', '.join(lost)}" if lost else ""
    if not names:
        return f"Nothing was compared with a copy of the same bytes{f'; {failed}' if lost else ''}."
    shared = set.intersection(*(set(costs[spec]) for spec in names))
    ordered = sorted(names, key=lambda spec: fsum(log(costs[spec][one]) for one in shared))
    each = [f"{names[spec]} {_ranges(costs[spec])}" for spec in ordered]
    order = ", the cheapest plane first" if len(each) > 1 else ""
    parts = "; ".join([*each, *filter(None, [failed])])
    return f"Cost of a batch in copies of as many bytes{order}: {parts}."


def _ranges(costs: dict[tuple[str, str], float]) -> str:
    """Return the least and the largest cost of each operation over the shapes."""
    found = {name: [c for (of, _), c in costs.items() if of == name] for name in HEADLINES}
    return ", ".join(f"{name} {_range(values)}" for name, values in found.items() if values)


def _range(values: list[float]) -> str:
    low, high = plain(min(values)), plain(max(values))
    return low if low == high else f"{low} to {high}"

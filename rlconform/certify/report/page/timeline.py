"""Geometry of a history's timeline: a lane per caller, a bar per call, which the page draws as SVG.

Shown are the calls that prove the anomaly, marked, and those that were under way meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlconform.certify.concurrency.anomaly import Anomaly, shortest_first
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.named_checkers import checker_named_in
from rlconform.certify.concurrency.operation import Operation, from_jsonl

WIDTH, LANE, LABEL, TOP = 1000.0, 22.0, 150.0, 16.0
#: Calls that are shown beside those that prove the anomaly.
MOST_OTHERS = 120
#: Width in pixels of a bar that fits its call's name, per character.
CHARACTER = 6.5


@dataclass(frozen=True)
class CallBar:
    """One call: a rectangle, its kind, and a title with its times and its result."""

    x: float
    y: float
    width: float
    kind: str
    label: str  # "" if it does not fit
    title: str
    proves: bool  # whether the anomaly rests on it


@dataclass(frozen=True)
class HistoryChart:
    """The timeline of one history."""

    lanes: tuple[tuple[str, float], ...]  # each caller with the height of its lane
    bars: tuple[CallBar, ...]
    ticks: tuple[tuple[float, str], ...]
    height: float
    calls: int  # in the history
    left_out: int  # of the calls meanwhile


def history_chart(text: str, evidence: str) -> HistoryChart | None:
    """Lay out a saved history around the anomaly that the check's evidence names."""
    operations = from_jsonl(text)
    if not operations:
        return None
    history = History(operations)
    checker = checker_named_in(evidence)
    found = shortest_first(checker(history))[:1] if checker else []
    return _chart(history, found[0] if found else None)


def _chart(history: History, anomaly: Anomaly | None) -> HistoryChart:
    proof = list(anomaly.operations) if anomaly else []
    first, last = _span(proof or list(history.operations[:MOST_OTHERS]))
    others = [
        op
        for op in history.operations
        if op not in proof and op.start <= last and min(op.latest, last) >= first
    ]
    shown = sorted([*proof, *others[:MOST_OTHERS]], key=lambda op: op.start)
    start, end = _span(shown)
    scale = (WIDTH - LABEL - 10) / max(1e-9, end - start)
    callers = list(dict.fromkeys(op.who for op in shown))

    def x(seconds: float) -> float:
        return LABEL + (min(seconds, end) - start) * scale

    bars = []
    for op in shown:
        width = max(2.0, x(op.latest) - x(op.start))
        bars.append(
            CallBar(
                round(x(op.start), 1), TOP + LANE * callers.index(op.who), round(width, 1), op.op,
                op.op if width > CHARACTER * len(op.op) + 4 else "", _title(op, start), op in proof,
            )
        )  # fmt: skip
    ticks = tuple(
        (
            round(LABEL + (WIDTH - LABEL - 10) * part / 4, 1),
            f"{1000 * (end - start) * part / 4:.2f} ms",
        )
        for part in range(5)
    )
    lanes = tuple((who, TOP + LANE * number) for number, who in enumerate(callers))
    height = TOP + LANE * len(callers) + 4
    left_out = max(0, len(others) - MOST_OTHERS)
    return HistoryChart(lanes, tuple(bars), ticks, height, len(history.operations), left_out)


def _span(operations: Sequence[Operation]) -> tuple[float, float]:
    """Return the first start, and the last end of the calls that returned."""
    ends = [op.end for op in operations if op.end is not None]
    starts = [op.start for op in operations]
    return min(starts), max([*ends, *starts])


def _title(op: Operation, zero: float) -> str:
    until = "never ended" if math.isinf(op.latest) else f"{1000 * (op.latest - zero):.2f} ms"
    rows = ", ".join(str(one) for one in op.ids[:4]) + (
        f" and {len(op.ids) - 4} more" if len(op.ids) > 4 else ""
    )
    said = f"raised {op.error}" if op.error else ("no answer" if op.end is None else "returned")
    parts = [op.who, op.op, ", ".join(op.fields), op.task, f"rows {rows or 'none'}", said]
    return f"{1000 * (op.start - zero):.2f} ms to {until}: " + "; ".join(filter(None, parts))

"""Geometry of the page's charts: coordinates in pixels, which the template draws as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlconform.check_run.judge import RunReport
from rlconform.check_run.overview import GroupSpan
from rlconform.check_run.step_summaries import StepSummary

WIDTH, ROW, LABEL = 1000.0, 14.0, 170.0
#: Groups that the timeline shows.
MOST_GROUPS = 80


@dataclass(frozen=True)
class Bar:
    """A rectangle of the timeline, ``kind`` names its colour."""

    x: float
    width: float
    kind: str


@dataclass(frozen=True)
class TimelineRow:
    """A group: its bars from dispatch to its end, and a title with its times."""

    name: str
    y: float
    fate: str
    marked: bool  # an anomaly names it
    bars: tuple[Bar, ...]
    title: str


@dataclass(frozen=True)
class Timeline:
    """Rows of groups over the time of the run."""

    rows: tuple[TimelineRow, ...]
    height: float
    left_out: int
    seconds: float


def timeline(spans: Sequence[GroupSpan], concerned: set[str]) -> Timeline:
    """Lay out the groups that anomalies name, and an even choice of the others."""
    chosen = [span for span in spans if span.group_id in concerned][:MOST_GROUPS]
    others = [span for span in spans if span.group_id not in concerned]
    room = MOST_GROUPS - len(chosen)
    every = max(1, -(-len(others) // room)) if room > 0 else 0
    chosen += others[::every][:room] if every else []
    chosen.sort(key=lambda span: span.dispatched)
    first = min((span.dispatched for span in chosen), default=0)
    last = max((span.ended for span in chosen), default=1)
    scale = (WIDTH - LABEL) / max(1, last - first)

    def x(wall_ns: int) -> float:
        return LABEL + (wall_ns - first) * scale

    rows = tuple(
        TimelineRow(
            span.group_id[-24:], ROW * number, span.fate, span.group_id in concerned,
            _bars(span, x), _title(span, first),
        )
        for number, span in enumerate(chosen)
    )  # fmt: skip
    return Timeline(rows, ROW * len(rows) + 18, len(spans) - len(rows), (last - first) / 1e9)


def _bars(span: GroupSpan, x: object) -> tuple[Bar, ...]:
    assert callable(x)
    ends = [(span.committed, "flight"), (span.selected, "queue"), (span.ended, "training")]
    bars, begin = [], span.dispatched
    for number, (end, kind) in enumerate(ends):
        if end is None:
            continue
        later = any(one is not None for one, _ in ends[number + 1 :])
        name = kind if later or span.fate == "trained" else _last_kind(span)
        bars.append(Bar(x(begin), max(1.0, x(end) - x(begin)), name))
        begin = end
    return tuple(bars)


def _last_kind(span: GroupSpan) -> str:
    """Return how far a group came that was not trained on."""
    if span.selected is not None:
        return "training"
    return "queue" if span.committed is not None else "flight"


def _title(span: GroupSpan, first: int) -> str:
    times = [f"dispatched {(span.dispatched - first) / 1e9:.2f} s"]
    for name, wall_ns in (("committed", span.committed), ("selected", span.selected)):
        if wall_ns is not None:
            times.append(f"{name} {(wall_ns - first) / 1e9:.2f} s")
    return f"{span.group_id}: {', '.join(times)}, {span.fate} {(span.ended - first) / 1e9:.2f} s"


@dataclass(frozen=True)
class StalenessChart:
    """Worst and mean staleness over steps, as points of two polylines."""

    worst: str
    mean: str
    bound_y: float | None
    height: float
    top: int  # the highest staleness
    first_step: int
    last_step: int
    beyond: tuple[tuple[float, float], ...]  # points above the bound


def staleness_chart(steps: Sequence[StepSummary], bound: int | None) -> StalenessChart | None:
    """Lay out the chart; None if no step has a staleness."""
    known = [step for step in steps if step.known]
    if not known:
        return None
    height = 160.0
    top = max([step.worst for step in known] + [bound or 0, 1])
    span = max(1, known[-1].step - known[0].step)

    def point(step: int, lag: float) -> tuple[float, float]:
        x = 40 + (WIDTH - 60) * (step - known[0].step) / span
        return round(x, 1), round(height - 20 - (height - 40) * lag / top, 1)

    worst = [point(one.step, one.worst) for one in known]
    mean = [point(one.step, one.mean or 0.0) for one in known]
    beyond = tuple(
        spot
        for spot, one in zip(worst, known, strict=True)
        if bound is not None and one.worst > bound
    )
    return StalenessChart(
        " ".join(f"{x},{y}" for x, y in worst), " ".join(f"{x},{y}" for x, y in mean),
        None if bound is None else point(known[0].step, bound)[1], height, top,
        known[0].step, known[-1].step, beyond,
    )  # fmt: skip


def fate_bars(report: RunReport) -> list[tuple[str, int, float]]:
    """Return each fate with its count and its share of the largest."""
    fates = dict(report.overview.fates)
    fates.pop("dispatched", None)
    if report.overview.ledger.groups:
        fates["open"] = len(report.overview.ledger.groups)
    most = max(fates.values(), default=1)
    ordered = sorted(fates.items(), key=lambda item: -item[1])
    return [(fate, count, count / most) for fate, count in ordered]

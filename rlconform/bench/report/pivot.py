"""``pivot``: builds a table of text from entries that each name their row and column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

from rlconform.bench.document import Summary
from rlconform.bench.report import units
from rlconform.bench.report.ratios import Ratio
from rlconform.bench.report.units import Spell

DASH = "\N{EN DASH}"

Figure = TypeVar("Figure", Ratio, Summary)


@dataclass(frozen=True)
class PivotCell:
    """A cell: a figure with its spread, a gap with its reason, or prose.

    ``drawn`` is what a chart shows of it: the value and the ends of its whiskers.
    """

    text: str
    spread: str = ""
    kind: Literal["figure", "gap", "prose"] = "figure"
    reason: str = ""
    drawn: tuple[float, float, float] | None = None


class Entry(NamedTuple):
    """A cell, the labels of its row and the heading of its column."""

    labels: tuple[str, ...]
    column: str
    cell: PivotCell


class PivotRow(NamedTuple):
    """``labels``, then ``cells``: together one for each heading."""

    labels: tuple[str, ...]
    cells: tuple[PivotCell, ...]


@dataclass(frozen=True)
class PivotTable:
    """A table and the sentences that explain it; a minor one may be folded up."""

    key: str
    title: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[PivotRow, ...]
    minor: bool = False


def pivot(
    key: str,
    title: str,
    caption: str,
    labels: tuple[str, ...],
    entries: Iterable[Entry],
    names: Mapping[str, str] = MappingProxyType({}),
    *,
    columns: Iterable[str] = (),
    minor: bool = False,
) -> PivotTable:
    """The entries as a table; a missing cell is a dash.

    ``names`` replaces labels and columns. Rows are sorted by their labels' places in it; labels
    that are not in it come first. Otherwise rows, and columns after those given, are in the order
    of the entries.
    """
    rows: dict[tuple[str, ...], dict[str, PivotCell]] = {}
    seen = dict.fromkeys(columns)
    for entry in entries:
        rows.setdefault(entry.labels, {})[entry.column] = entry.cell
        seen.setdefault(entry.column)
    place = {label: number for number, label in enumerate(names)}
    unmeasured = PivotCell(DASH, kind="gap", reason="not measured")
    sorted_rows = tuple(
        PivotRow(
            tuple(names.get(label, label) for label in row),
            tuple(rows[row].get(column, unmeasured) for column in seen),
        )
        for row in sorted(rows, key=lambda row: [place.get(label, -1) for label in row])
    )
    headings = (*labels, *(names.get(column, column) for column in seen))
    return PivotTable(key, title, caption, headings, sorted_rows, minor)


def ratio_cell(ratio: Ratio) -> PivotCell:
    """A ratio and its bounds."""
    span = _span(units.plain, ratio.low, ratio.high)
    return PivotCell(units.times(ratio.value), span, drawn=ratio)


def quartiles_cell(spell: Spell, median: float, low: float, high: float) -> PivotCell:
    """A median and its quartiles."""
    return PivotCell(spell(median), _span(spell, low, high), drawn=(median, low, high))


def seconds_cell(seconds: Summary) -> PivotCell:
    """The median and the quartiles."""
    return quartiles_cell(units.duration, seconds.median, seconds.p25, seconds.p75)


def latency_cell(seconds: Summary) -> PivotCell:
    """The median and the 99th percentile."""
    median, p99 = seconds.median, seconds.p99
    spread = f"p99 {units.duration(p99)}"
    return PivotCell(units.duration(median), spread, drawn=(median, median, p99))


def rate_cell(rate: Summary) -> PivotCell:
    """The median and the quartiles of a rate, without its unit."""
    return quartiles_cell(units.plain, rate.median, rate.p25, rate.p75)


def throughput_cell(count: int, seconds: Summary) -> PivotCell:
    """``count`` bytes over the median and the quartiles of ``seconds``."""
    if seconds.p25 <= 0:
        return gap_cell("the clock measured no time")
    fractions = (count / s for s in (seconds.median, seconds.p75, seconds.p25))
    return quartiles_cell(units.throughput, *fractions)


def gap_cell(refused: str) -> PivotCell:
    """No figure, because the plane refused the measurement; ``refused`` says why."""
    return PivotCell("no figure", kind="gap", reason=refused)


def cell_or_gap(
    make: Callable[[Figure], PivotCell], figure: Figure | None, refused: str
) -> PivotCell:
    """The cell of the figure if there is one, or else a gap."""
    return make(figure) if figure else gap_cell(refused)


def _span(spell: Spell, low: float, high: float) -> str:
    """From low to high; a unit that both share is written once."""
    low_text, high_text = spell(low), spell(high)
    number, _, unit = low_text.partition(" ")
    shared = unit and high_text.endswith(f" {unit}")
    return f"{number if shared else low_text}{DASH}{high_text}"

"""``pivot``: builds a table of text from entries that each name a row and a column."""

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

    ``drawn`` is what a chart shows of the cell: the value and the ends of its whiskers.
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
    """A row: ``labels``, then ``cells``, as many in all as the table has headings."""

    labels: tuple[str, ...]
    cells: tuple[PivotCell, ...]


@dataclass(frozen=True)
class PivotTable:
    """A table and the sentences that explain it; the page may collapse a minor table."""

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
    """Build a table of the entries, with a dash for a missing cell.

    ``names`` maps labels and columns to the texts shown. Rows are sorted in the order of ``names``,
    rows with other labels first; otherwise rows are in the order of the entries. So are columns,
    after the given ``columns``.
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
    """Return the cell of a ratio and its bounds."""
    span = _span(units.plain, ratio.low, ratio.high)
    return PivotCell(units.times(ratio.value), span, drawn=ratio)


def quartiles_cell(spell: Spell, median: float, low: float, high: float) -> PivotCell:
    """Return the cell of a median and its quartiles."""
    return PivotCell(spell(median), _span(spell, low, high), drawn=(median, low, high))


def seconds_cell(seconds: Summary) -> PivotCell:
    """Return the cell of a median in seconds and its quartiles."""
    return quartiles_cell(units.duration, seconds.median, seconds.p25, seconds.p75)


def latency_cell(seconds: Summary) -> PivotCell:
    """Return the cell of a median in seconds and the 99th percentile."""
    median, p99 = seconds.median, seconds.p99
    spread = f"p99 {units.duration(p99)}"
    return PivotCell(units.duration(median), spread, drawn=(median, median, p99))


def rate_cell(rate: Summary) -> PivotCell:
    """Return the cell of a rate's median and quartiles, without unit."""
    return quartiles_cell(units.plain, rate.median, rate.p25, rate.p75)


def throughput_cell(count: int, seconds: Summary) -> PivotCell:
    """Return the cell of ``count`` bytes over the median and quartiles of ``seconds``."""
    if seconds.p25 <= 0:
        return gap_cell("the clock measured no time")
    fractions = (count / s for s in (seconds.median, seconds.p75, seconds.p25))
    return quartiles_cell(units.throughput, *fractions)


def gap_cell(refused: str) -> PivotCell:
    """Return the cell of a measurement that the plane refused; ``refused`` says why."""
    return PivotCell("no figure", kind="gap", reason=refused)


def cell_or_gap(
    make: Callable[[Figure], PivotCell], figure: Figure | None, refused: str
) -> PivotCell:
    """Return the cell of the figure, or a gap if there is no figure."""
    return make(figure) if figure else gap_cell(refused)


def _span(spell: Spell, low: float, high: float) -> str:
    """Return the range from low to high; a unit that both numbers have is written once."""
    low_text, high_text = spell(low), spell(high)
    number, _, unit = low_text.partition(" ")
    shared = unit and high_text.endswith(f" {unit}")
    return f"{number if shared else low_text}{DASH}{high_text}"

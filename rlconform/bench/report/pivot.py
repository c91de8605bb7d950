"""A table of text made of entries: each says its row, its column, and what stands there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from rlconform.bench.document import BenchDocument, Summary
from rlconform.bench.report import units
from rlconform.bench.report.ratios import Ratio

DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class PivotCell:
    """What stands in a table: a figure with its spread, a gap with its reason, or prose."""

    text: str
    spread: str = ""
    kind: Literal["figure", "gap", "prose"] = "figure"
    reason: str = ""


@dataclass(frozen=True)
class Entry:
    """``cell`` stands in the row named by ``labels``, which is ``target``'s (or nobody's: "")."""

    labels: tuple[str, ...]
    column: str
    cell: PivotCell
    target: str = ""


@dataclass(frozen=True)
class PivotRow:
    """``labels``, then ``cells``: together one for each heading."""

    labels: tuple[str, ...]
    cells: tuple[PivotCell, ...]
    target: str = ""


@dataclass(frozen=True)
class PivotTable:
    """A table and the sentences that tell how to read it; a minor one may be folded up.

    ``key`` names it for what is shown beside it, such as a plot.
    """

    key: str
    title: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[PivotRow, ...]
    minor: bool = False


class _OfTarget(Protocol):
    @property
    def target(self) -> str: ...


class _OfShape(_OfTarget, Protocol):
    @property
    def shape(self) -> str: ...


TargetRow = TypeVar("TargetRow", bound=_OfTarget)
ShapeRow = TypeVar("ShapeRow", bound=_OfShape)


def pivot(
    key: str,
    title: str,
    caption: str,
    labels: tuple[str, ...],
    entries: Iterable[Entry],
    *,
    columns: tuple[str, ...] = (),
    minor: bool = False,
) -> PivotTable:
    """Rows in the order in which the entries name them, columns too unless they are given.

    Where no entry stands, a dash tells that nothing was measured.
    """
    rows: dict[tuple[str, ...], dict[str, PivotCell]] = {}
    owners: dict[tuple[str, ...], str] = {}
    seen = dict.fromkeys(columns)
    for entry in entries:
        rows.setdefault(entry.labels, {})[entry.column] = entry.cell
        owners[entry.labels] = entry.target
        seen.setdefault(entry.column)
    unmeasured = PivotCell(DASH, kind="gap", reason="not measured")
    laid = tuple(
        PivotRow(key, tuple(cells.get(column, unmeasured) for column in seen), owners[key])
        for key, cells in rows.items()
    )
    return PivotTable(key, title, caption, (*labels, *seen), laid, minor)


def ratio_cell(ratio: Ratio) -> PivotCell:
    """How many times, with its bounds beside it."""
    return PivotCell(units.times(ratio.value), _span(units.plain, ratio.low, ratio.high))


def seconds_cell(seconds: Summary) -> PivotCell:
    """The median and the quartiles."""
    return PivotCell(
        units.duration(seconds.median), _span(units.duration, seconds.p25, seconds.p75)
    )


def latency_cell(seconds: Summary) -> PivotCell:
    """The median and the 99th percentile."""
    return PivotCell(units.duration(seconds.median), f"p99 {units.duration(seconds.p99)}")


def rate_cell(per_second: Summary) -> PivotCell:
    """The median and the quartiles of a rate, without its unit."""
    return PivotCell(
        units.plain(per_second.median), _span(units.plain, per_second.p25, per_second.p75)
    )


def throughput_cell(count: int, seconds: Summary) -> PivotCell:
    """``count`` bytes over the median and the quartiles of the time that they took."""
    if seconds.p25 <= 0:
        return gap_cell("the clock saw no time pass")
    low, median, high = (count / s for s in (seconds.p75, seconds.median, seconds.p25))
    return PivotCell(units.throughput(median), _span(units.throughput, low, high))


def gap_cell(refused: str) -> PivotCell:
    """Stands for a figure that was asked for and did not come; ``refused`` says why."""
    return PivotCell("no figure", kind="gap", reason=refused)


def by_target(document: BenchDocument, rows: Sequence[TargetRow]) -> list[TargetRow]:
    """``rows`` in the order of the targets; a stable sort, so the rest of their order stays."""
    ranks = _ranks(target.spec for target in document.targets)
    return sorted(rows, key=lambda row: ranks[row.target])


def by_shape(document: BenchDocument, rows: Sequence[ShapeRow]) -> list[ShapeRow]:
    """``rows`` in the order of the shapes and, within one, of the targets."""
    ranks = _ranks(shape.name for shape in document.shapes)
    return sorted(by_target(document, rows), key=lambda row: ranks[row.shape])


def _ranks(ordered: Iterable[str]) -> dict[str, int]:
    return {name: rank for rank, name in enumerate(ordered)}


def _span(spell: Callable[[float], str], low: float, high: float) -> str:
    """From low to high; a unit that both have stands once."""
    low_text, high_text = spell(low), spell(high)
    number, _, unit = low_text.partition(" ")
    shared = unit and high_text.endswith(f" {unit}")
    return f"{number if shared else low_text}{DASH}{high_text}"

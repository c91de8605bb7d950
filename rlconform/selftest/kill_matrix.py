"""The kill matrix: which requirements must kill (reject) which mutants, alone or with others.

The terminal summary, ``self-test.html`` and the table in the docs use the same matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from rlconform._page import render_template
from rlconform.contract import Requirement
from rlconform.mutants.mutant import Mutant
from rlconform.selftest.classify import GOOD, TrialResult


@dataclass(frozen=True)
class MutantRow:
    """One requirement: the mutants that it must kill, and those that it alone must kill."""

    requirement: Requirement
    mutants: list[str]
    alone: list[str]


@dataclass(frozen=True)
class KillMatrix:
    """Rows in the contract's order; ``judged`` maps the names that ran to their results."""

    rows: list[MutantRow]
    judged: Mapping[str, TrialResult]


def matrix_of(
    requirements: Mapping[str, Requirement],
    mutants: Mapping[str, Mutant],
    results: Iterable[TrialResult] = (),
) -> KillMatrix:
    """Build the matrix of the published requirements on planes."""
    rows = []
    for row in requirements.values():
        if row.scope == "plane" and row.published:
            killed = [name for name, mutant in mutants.items() if row.id in mutant.fails]
            rows.append(MutantRow(row, killed, [n for n in killed if is_alone(mutants[n])]))
    return KillMatrix(rows, {one.name: one for one in results})


def is_alone(mutant: Mutant) -> bool:
    """Whether exactly one requirement must kill the mutant, even if others may kill it."""
    return len(mutant.fails) == 1


class KillCell(NamedTuple):
    """One cell: its kind (``sole``, ``killed``, ``may``, ``wrong`` or empty) and its tooltip."""

    kind: str = ""
    title: str = ""


class Line(NamedTuple):
    """One row of the page: a mutant with a cell for each requirement."""

    name: str
    rationale: str
    fails: str
    detail: str
    wrong: bool
    cells: list[KillCell]

    @property
    def runs(self) -> list[tuple[KillCell, int]]:
        """The cells with the number of columns of each; empty neighbours are one cell.

        Most cells are empty: a page with each of them takes a browser a minute to print.
        """
        merged: list[tuple[KillCell, int]] = []
        for empty, group in groupby(self.cells, KillCell().__eq__):
            cells = list(group)
            merged += [(cells[0], len(cells))] if empty else [(cell, 1) for cell in cells]
        return merged


def lines_of(matrix: KillMatrix, mutants: Mapping[str, Mutant]) -> list[Line]:
    """Return the mutants that ran, ordered by the first requirement that must kill each of them."""
    order = {row.requirement.id: place for place, row in enumerate(matrix.rows)}

    def place(name: str) -> tuple[int, str]:
        return min(order.get(killer, len(order)) for killer in mutants[name].fails), name

    lines = []
    for name in sorted(mutants.keys() & matrix.judged.keys(), key=place):
        mutant, result = mutants[name], matrix.judged[name]
        wrong = result.kind not in GOOD
        detail = f"{result.kind} {result.detail}".strip() if wrong else ""
        cells = [_cell(row.requirement, mutant, result) for row in matrix.rows]
        lines.append(Line(name, mutant.rationale, ", ".join(mutant.fails), detail, wrong, cells))
    return lines


def _cell(row: Requirement, mutant: Mutant, result: TrialResult) -> KillCell:
    declared, may = row.id in mutant.fails, row.id in mutant.may_fail
    if declared != (row.id in result.broken) and not may:
        says = "survived" if declared else f"killed too: {result.broken[row.id]}"
        return KillCell("wrong", f"{row.id} {says}")
    if declared:
        kind = "sole" if is_alone(mutant) else "killed"
        return KillCell(kind, f"{row.id} {result.broken[row.id]}".strip())
    if may:
        return KillCell("may", f"{row.id} may kill it as well")
    return KillCell()


class DefectTable(NamedTuple):
    """What the page shows of the trainer's defects: rules, a row per defect, and what is right."""

    rules: Sequence[str] = ()
    lines: Sequence[Line] = ()
    right: Sequence[TrialResult] = ()


def render_html(
    matrix: KillMatrix,
    mutants: Mapping[str, Mutant],
    header: Mapping[str, str],
    trainer: DefectTable | None = None,
    parts: DefectTable | None = None,
) -> str:
    """Render the results as one HTML page that needs no network."""
    shown, of_parts = trainer or DefectTable(), parts or DefectTable()
    return render_template(
        "rlconform.selftest",
        "page.html.j2",
        columns=[(row.requirement.id, row.requirement.title) for row in matrix.rows],
        rules=[(rule, rule) for rule in shown.rules],
        part_rules=[(rule, rule) for rule in of_parts.rules],
        lines=lines_of(matrix, mutants),
        references=[one for name, one in matrix.judged.items() if name not in mutants],
        bare=[row for row in matrix.rows if not row.alone],
        header=header,
        trainer=shown,
        parts=of_parts,
    )


def render_markdown(matrix: KillMatrix) -> str:
    """Render the matrix as a Markdown table for the docs, one row per requirement."""
    lines = [
        "| Requirement | Must be killed by it alone | Must be killed by it and others |",
        "| --- | --- | --- |",
    ]
    for row in matrix.rows:
        others = [name for name in row.mutants if name not in row.alone]
        excluded = row.requirement.excluded
        alone = ", ".join(row.alone) or (f"({excluded})" if excluded else "")
        lines.append(f"| {row.requirement.id} | {alone} | {', '.join(others)} |")
    return "\n".join(lines) + "\n"

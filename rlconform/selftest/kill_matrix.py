"""Mutants by requirement: which requirement catches which, and which alone. Pure, but for drawing.

The same matrix goes to the terminal, to ``self-test.html`` and, as a table, to the docs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from rlconform.contract import Requirement
from rlconform.mutants.mutant import Mutant
from rlconform.selftest.classify import GOOD, TrialResult


@dataclass(frozen=True)
class MutantRow:
    """One requirement: the mutants that it must catch, and those that no other catches."""

    requirement: Requirement
    mutants: list[str]
    alone: list[str]


@dataclass(frozen=True)
class KillMatrix:
    """Rows in the contract's order; ``judged`` holds what came of the mutants that ran."""

    rows: list[MutantRow]
    judged: Mapping[str, TrialResult]


def matrix_of(
    requirements: Mapping[str, Requirement],
    mutants: Mapping[str, Mutant],
    judgements: Iterable[TrialResult] = (),
) -> KillMatrix:
    """The matrix of the published requirements that planes are held to."""
    by_id: dict[str, list[str]] = {}
    for name, mutant in mutants.items():
        for killed in mutant.fails:
            by_id.setdefault(killed, []).append(name)
    rows = [
        MutantRow(
            row, by_id.get(row.id, []), [n for n in by_id.get(row.id, []) if is_alone(mutants[n])]
        )
        for row in requirements.values()
        if row.scope == "plane" and row.published
    ]
    return KillMatrix(rows, {one.name: one for one in judgements})


def is_alone(mutant: Mutant) -> bool:
    """Whether one requirement must catch it and no other has to; some others may, at times."""
    return len(mutant.fails) == 1


@dataclass(frozen=True)
class KillCell:
    """One square: ``sole``, ``killed``, ``may``, ``wrong`` or nothing, and what it says."""

    kind: str = ""
    title: str = ""


@dataclass(frozen=True)
class Line:
    """One mutant across all requirements."""

    name: str
    rationale: str
    fails: str
    detail: str
    wrong: bool
    cells: list[KillCell]


def lines_of(matrix: KillMatrix, mutants: Mapping[str, Mutant]) -> list[Line]:
    """Mutants that were tried, in the order of the requirements that catch them first."""
    order = {row.requirement.id: place for place, row in enumerate(matrix.rows)}
    places = {
        name: min(order.get(killed, len(order)) for killed in mutant.fails)
        for name, mutant in mutants.items()
    }
    return [
        _line(name, mutants[name], matrix)
        for name in sorted(mutants, key=lambda name: (places[name], name))
        if name in matrix.judged
    ]


def _line(name: str, mutant: Mutant, matrix: KillMatrix) -> Line:
    judged = matrix.judged[name]
    wrong = judged.kind not in GOOD
    detail = f"{judged.kind} {judged.detail}".strip()
    cells = [_cell(row.requirement, mutant, judged) for row in matrix.rows]
    shown = detail if wrong else ""
    return Line(name, mutant.rationale, ", ".join(mutant.fails), shown, wrong, cells)


def _cell(row: Requirement, mutant: Mutant, judged: TrialResult) -> KillCell:
    declared, may = row.id in mutant.fails, row.id in mutant.may_fail
    broke = row.id in judged.broken
    if declared != broke and not may:
        says = "survived" if declared else f"killed too: {judged.broken[row.id]}"
        return KillCell("wrong", f"{row.id} {says}")
    if declared:
        evidence = judged.broken[row.id]
        kind = "sole" if is_alone(mutant) else "killed"
        return KillCell(kind, f"{row.id} {evidence}".strip())
    if may:
        return KillCell("may", f"{row.id} may catch it as well")
    return KillCell()


def render_html(
    matrix: KillMatrix, mutants: Mapping[str, Mutant], header: Mapping[str, str]
) -> str:
    """What was tried, as one page that needs no network."""
    template = files("rlconform.selftest").joinpath("page.html.j2").read_text("utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(template)
    return page.render(
        matrix=matrix,
        lines=lines_of(matrix, mutants),
        references=[one for name, one in matrix.judged.items() if name not in mutants],
        bare=[row for row in matrix.rows if not row.alone],
        header=header,
    )


def render_markdown(matrix: KillMatrix) -> str:
    """The matrix as a table for the docs: by requirement, alone first."""
    lines = ["| Requirement | It alone must catch | Caught with others |", "| --- | --- | --- |"]
    for row in matrix.rows:
        others = [name for name in row.mutants if name not in row.alone]
        alone = ", ".join(row.alone) or (
            f"({row.requirement.excluded})" * bool(row.requirement.excluded)
        )
        lines.append(f"| {row.requirement.id} | {alone} | {', '.join(others)} |")
    return "\n".join(lines) + "\n"

"""The kill matrix: which requirements must kill which mutants, alone or with others.

The terminal summary, ``self-test.html`` and the table in the docs use the same matrix.
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
    judgements: Iterable[TrialResult] = (),
) -> KillMatrix:
    """The matrix of the published requirements on planes."""
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
    """Whether exactly one requirement must kill the mutant, even if others may kill it."""
    return len(mutant.fails) == 1


@dataclass(frozen=True)
class KillCell:
    """One cell: its kind (``sole``, ``killed``, ``may``, ``wrong`` or empty) and its tooltip."""

    kind: str = ""
    title: str = ""


@dataclass(frozen=True)
class Line:
    """One row of the page: a mutant with a cell for each requirement."""

    name: str
    rationale: str
    fails: str
    detail: str
    wrong: bool
    cells: list[KillCell]


def lines_of(matrix: KillMatrix, mutants: Mapping[str, Mutant]) -> list[Line]:
    """The mutants that ran, in the order of the first requirement that must kill each."""
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
    """Render the results as one HTML page that needs no network."""
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
    """Render the matrix as a Markdown table for the docs, one row per requirement."""
    lines = ["| Requirement | It alone must catch | Caught with others |", "| --- | --- | --- |"]
    for row in matrix.rows:
        others = [name for name in row.mutants if name not in row.alone]
        alone = ", ".join(row.alone) or (
            f"({row.requirement.excluded})" * bool(row.requirement.excluded)
        )
        lines.append(f"| {row.requirement.id} | {alone} | {', '.join(others)} |")
    return "\n".join(lines) + "\n"

"""The matrix of requirements and mutants, and how the page and the docs show it."""

from __future__ import annotations

import pytest

from rlconform.backends.memory import TARGET, MemoryClient
from rlconform.contract import Requirement, load_requirements
from rlconform.mutants.mutant import mutant
from rlconform.selftest.classify import (
    TrialOutcome,
    TrialResult,
)
from rlconform.selftest.kill_matrix import (
    KillCell,
    Line,
    lines_of,
    matrix_of,
    render_html,
    render_markdown,
)

SAYS = "expected a row"


@mutant(TARGET, "GET-04 GET-06", evidence=SAYS, may_fail="GET-05")
class LeavesRowsOut(MemoryClient):
    """Leaves rows out."""


@pytest.fixture
def rows() -> dict[str, Requirement]:
    names = ("GET-04", "GET-05", "GET-06", "PUT-02")
    return {name: load_requirements()[name] for name in names}


@mutant(TARGET, "PUT-02", evidence="fp8")
class Widens(MemoryClient):
    """Widens <fp8> rows."""


MUTANTS = {"widens": Widens, "leaves_rows_out": LeavesRowsOut}


def test_the_matrix_knows_who_catches_alone(rows: dict[str, Requirement]) -> None:
    matrix = matrix_of(rows, MUTANTS)
    detail = {row.requirement.id: (row.mutants, row.alone) for row in matrix.rows}
    assert detail["PUT-02"] == (["widens"], ["widens"])
    assert detail["GET-04"] == (["leaves_rows_out"], [])
    assert detail["GET-05"] == ([], [])


def test_cells_show_what_came_against_what_was_declared(rows: dict[str, Requirement]) -> None:
    came = {"GET-04": "a", "PUT-02": "b"}
    judged = [
        TrialResult("leaves_rows_out", TrialOutcome.KILLED_BY_OTHERS_TOO, came, 1.0, "PUT-02: b"),
        TrialResult("widens", TrialOutcome.KILLED, {"PUT-02": "b"}, 1.0),
    ]
    first, second = lines_of(matrix_of(rows, MUTANTS, judged), MUTANTS)
    assert first.name == "leaves_rows_out"
    assert [cell.kind for cell in first.cells] == ["killed", "may", "wrong", "wrong"]
    assert first.wrong
    assert [cell.kind for cell in second.cells] == ["", "", "", "sole"]
    assert not second.wrong


def test_what_was_not_tried_has_no_line(rows: dict[str, Requirement]) -> None:
    judged = [TrialResult("widens", TrialOutcome.KILLED, {"PUT-02": "b"}, 1.0)]
    assert [line.name for line in lines_of(matrix_of(rows, MUTANTS, judged), MUTANTS)] == ["widens"]


def test_the_page_escapes_what_planes_say(rows: dict[str, Requirement]) -> None:
    judged = [
        TrialResult("widens", TrialOutcome.KILLED, {"PUT-02": "<script>"}, 1.0),
        TrialResult("memory", TrialOutcome.PASSED, {}, 1.0),
    ]
    header = {"created": "now", "kit": "1", "host": "here", "summary": "two"}
    page = render_html(matrix_of(rows, MUTANTS, judged), MUTANTS, header)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "Widens &lt;fp8&gt; rows." in page
    assert "Right planes" in page


def test_the_table_for_the_docs_has_a_line_for_each_requirement(
    rows: dict[str, Requirement],
) -> None:
    lines = render_markdown(matrix_of(rows, MUTANTS)).splitlines()
    assert lines[2] == "| GET-04 |  | leaves_rows_out |"
    assert lines[5] == "| PUT-02 | widens |  |"


def test_empty_cells_of_a_row_are_one_cell_of_the_page() -> None:
    sole, empty = KillCell("sole", "GET-04"), KillCell()
    line = Line("name", "", "", "", False, [empty, empty, sole, sole, empty])
    assert line.runs == [(empty, 2), (sole, 1), (sole, 1), (empty, 1)]

"""The kill matrix of rules: which one finds which defect of the trainer, or of a part of it.

Rules are those of ``check-run``, or of the judges of parts. The page of the self-test shows results
in it; ``docs/trainer_defects.md`` what is declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rlconform.check_run.rules import ALL_RULES
from rlconform.mutants.defect import Defect
from rlconform.selftest.classify import GOOD, TrialResult
from rlconform.selftest.kill_matrix import KillCell, Line

#: The name of what finds defects of router replay, beside those of the rules of ``check-run``.
CHECK_R3 = "check_r3"
#: Names of the rules in the order of a report, and of the checker of traces.
RULES = (*(rule.name for rule in ALL_RULES), CHECK_R3)


def rule_lines(
    defects: Mapping[str, Defect], results: Iterable[TrialResult], rules: Sequence[str] = RULES
) -> list[Line]:
    """Return a row of the page for each defect that ran, in the order of its first rule."""
    lines = [
        _line(defects[result.name], result, rules) for result in results if result.name in defects
    ]
    return sorted(lines, key=lambda line: _place(defects[line.name], rules))


def _line(defect: Defect, result: TrialResult, rules: Sequence[str]) -> Line:
    wrong = result.kind not in GOOD
    detail = f"{result.kind} {result.detail}".strip() if wrong else result.detail
    cells = [_cell(rule, defect, result) for rule in rules]
    seen = f"{', '.join(defect.found_by) or 'no rule'} · seen in {defect.seen}"
    return Line(defect.name, defect.rationale, seen, detail, wrong, cells)


def _cell(rule: str, defect: Defect, result: TrialResult) -> KillCell:
    declared, found = rule in defect.found_by, rule in result.broken
    if declared != found and rule not in defect.may:
        says = f"found it too: {result.broken[rule]}" if found else "passed"
        return KillCell("wrong", f"{rule} {says}")
    if declared:
        kind = "sole" if len(defect.found_by) == 1 and not defect.may else "killed"
        return KillCell(kind, f"{rule}: {result.broken[rule]}")
    return KillCell("may", f"{rule}: {result.broken[rule]}") if found else KillCell()


def _place(defect: Defect, rules: Sequence[str]) -> tuple[int, str]:
    first = rules.index(defect.found_by[0]) if defect.found_by else len(rules)
    return first, defect.name


def render_rule_matrix(defects: Mapping[str, Defect], rules: Sequence[str] = RULES) -> str:
    """Render what the defects declare as Markdown: the matrix, and what each does wrong."""
    ordered = sorted(defects.values(), key=lambda defect: _place(defect, rules))
    used = [rule for rule in rules if any(rule in one.found_by for one in ordered)]
    found, hidden = (
        [one for one in ordered if not one.hidden],
        [one for one in ordered if one.hidden],
    )
    lines = [
        f"| Defect | {' | '.join(used)} |",
        f"| --- |{' --- |' * len(used)}",
        *(_row(defect, used) for defect in found),
        "",
        "| Defect | What it does wrong | Seen in |",
        "| --- | --- | --- |",
        *(_about(defect) for defect in found),
    ]
    if hidden:
        lines += [
            "",
            "No log can show these:",
            "",
            "| Defect | What it does wrong | Why no rule finds it | Seen in |",
            "| --- | --- | --- | --- |",
            *(f"| {one.name} | {_first_line(one)} | {one.hidden} | {one.seen} |" for one in hidden),
        ]
    return "\n".join(lines) + "\n"


def _row(defect: Defect, rules: Iterable[str]) -> str:
    marks = ("x" if r in defect.found_by else "(x)" if r in defect.may else "" for r in rules)
    return f"| {defect.name} | {' | '.join(marks)} |"


def _about(defect: Defect) -> str:
    return f"| {defect.name} | {_first_line(defect)} | {defect.seen} |"


def _first_line(defect: Defect) -> str:
    return " ".join(defect.rationale.partition("\n\n")[0].split())

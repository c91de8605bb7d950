"""Compares reports: a matrix of planes and requirements, and what changed between two. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlconform.certify.report.document import CheckPart, ReportDocument, RequirementPart
from rlconform.certify.results import BROKEN, Outcome


@dataclass(frozen=True)
class MatrixRow:
    """One requirement: its result in each report, None where the report has none."""

    id: str
    title: str
    strength: str
    results: tuple[RequirementPart | None, ...]

    @property
    def section(self) -> str:
        """The part of the id before the dash."""
        return self.id.rpartition("-")[0]

    @property
    def worst(self) -> str:
        """Whether it is ``broken``, ``differs`` or is the ``same``, by which the page filters."""
        outcomes = [result.outcome for result in self.results if result]
        if any(outcome in BROKEN or outcome is Outcome.DEVIATION for outcome in outcomes):
            return "broken"
        return (
            "same" if len(set(outcomes)) < 2 and len(outcomes) == len(self.results) else "differs"
        )


def matrix_rows(reports: Sequence[ReportDocument]) -> list[MatrixRow]:
    """Return a row for each requirement of any report, in the contract's order."""
    by_report = [{part.id: part for part in report.requirements} for report in reports]
    longest = max(by_report, key=len, default={})
    ids = list(dict.fromkeys([*longest, *(one for parts in by_report for one in parts)]))
    rows = []
    for one in ids:
        results = tuple(parts.get(one) for parts in by_report)
        first = next(result for result in results if result)
        rows.append(MatrixRow(one, first.title, first.level, results))
    return rows


class ChangeKind(StrEnum):
    """How the outcome of a requirement has changed."""

    BROKEN = "newly broken"
    LOST = "no longer passes"
    REPAIRED = "repaired"
    NEW = "new"
    OTHER = "other"


#: Outcomes that are no better than NOT_TESTED for a reader who relied on a PASS.
_GOOD = frozenset({Outcome.PASS, Outcome.WARN})


@dataclass(frozen=True)
class RequirementChange:
    """A requirement whose result differs between two reports."""

    kind: ChangeKind
    id: str
    title: str
    strength: str
    old: RequirementPart | None
    new: RequirementPart | None


@dataclass(frozen=True)
class ReportDiff:
    """What changed from one report to another."""

    old: ReportDocument
    new: ReportDocument
    header: list[tuple[str, str, str]]  # name, old and new value of what differs
    changes: list[RequirementChange]  # newly broken first
    checks: list[tuple[CheckPart, CheckPart]]  # that ran in both, with other outcomes
    still_broken: list[str]  # ids broken in both
    not_compared: list[str]  # ids whose checks one of the runs did not select

    @property
    def is_worse(self) -> bool:
        """Whether a requirement broke or is no longer tested, or the verdict is lost."""
        return any(c.kind in {ChangeKind.BROKEN, ChangeKind.LOST} for c in self.changes)


def diff_reports(old: ReportDocument, new: ReportDocument) -> ReportDiff:
    """Return what changed from the old report to the new one."""
    changes, not_compared = [], []
    for row in matrix_rows([new, old]):
        after, before = row.results
        if any(part and part.unselected for part in row.results):
            not_compared.append(row.id)
        elif (before and before.outcome) != (after and after.outcome):
            kind = _kind(before, after)
            changes.append(RequirementChange(kind, row.id, row.title, row.strength, before, after))
    changes.sort(key=lambda change: list(ChangeKind).index(change.kind))
    ran = {check.id: check for check in old.checks if check.ran}
    checks = [
        (ran[check.id], check)
        for check in new.checks
        if check.ran and check.id in ran and ran[check.id].outcome is not check.outcome
    ]
    broken = _broken(old)
    still = [part.id for part in new.requirements if part.id in broken and part.outcome in BROKEN]
    return ReportDiff(
        old, new, list(_header_changes(old, new)), changes, checks, still, not_compared
    )


def _kind(before: RequirementPart | None, after: RequirementPart | None) -> ChangeKind:
    if after is not None and after.outcome in BROKEN:
        return ChangeKind.OTHER if before and before.outcome in BROKEN else ChangeKind.BROKEN
    if before is not None and before.outcome in BROKEN and after is not None:
        return ChangeKind.REPAIRED if after.outcome in _GOOD else ChangeKind.OTHER
    if before is None:
        return ChangeKind.NEW
    lost = before.outcome in _GOOD and (after is None or after.outcome not in _GOOD)
    return ChangeKind.LOST if lost else ChangeKind.OTHER


def _broken(report: ReportDocument) -> set[str]:
    return {part.id for part in report.requirements if part.outcome in BROKEN}


def _header_changes(old: ReportDocument, new: ReportDocument) -> Iterable[tuple[str, str, str]]:
    """Yield what differs in the headers, the verdict first."""
    before, after = _facts(old), _facts(new)
    for name in dict.fromkeys([*before, *after]):
        was, is_now = before.get(name, "none"), after.get(name, "none")
        if was != is_now:
            yield name, was, is_now


def _facts(report: ReportDocument) -> dict[str, str]:
    header, target = report.header, report.header.target
    facts = {
        "verdict": str(report.verdict.verdict),
        "target": target.spec,
        "plane": target.name,
        "version": target.version or "none",
        "level": header.level,
        "requirement set": f"{header.requirement_set} {header.requirement_set_sha256[:12]}",
        "rlconform": header.kit,
        "selected": header.selected or "all",
        "seed": str(header.seed),
        "hosts": ", ".join(target.hosts) or "one",
    }
    if target.adapter:
        facts["adapter"] = f"{target.adapter.module} {target.adapter.sha256[:12]}"
        facts |= {f"{n} (adapter)": v for n, v in target.adapter.distributions.items()}
    facts |= {name: version or "none" for name, version in header.versions.items()}
    facts |= {f"capability {name}": str(value) for name, value in target.capabilities.items()}
    return facts

"""Computes requirement results from check results, and the verdict from those. Pure functions.

CheckResult... ──requirement_results──▶ RequirementResult... ──waivers, verdict_of──▶ Conclusion
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rlconform._exit_codes import ExitCode
from rlconform.certify.results import (
    BROKEN,
    CheckResult,
    Outcome,
    PlannedCheck,
    RequirementResult,
    worst,
)
from rlconform.contract import LEVELS, Level, Requirement

#: Outcomes of a MUST with which a plane is certified.
ACCEPTED = frozenset({Outcome.PASS, Outcome.WARN, Outcome.NOT_APPLICABLE})


class Verdict(StrEnum):
    """The verdict of a certificate."""

    CERTIFIED = "certified"
    CONDITIONAL = "conditional"
    NOT_CERTIFIED = "not certified"


@dataclass(frozen=True)
class Conclusion:
    """The verdict with the reasons that prevent a certificate, worst first."""

    verdict: Verdict
    exit_code: ExitCode
    reasons: list[str]


def in_profile(requirement: Requirement, level: Level) -> bool:
    """Whether a certification at ``level`` counts the requirement."""
    return (
        requirement.scope == "plane"
        and requirement.published
        and LEVELS.index(requirement.profile) <= LEVELS.index(level)
    )


def requirement_results(
    requirements: Mapping[str, Requirement],
    plan: Iterable[PlannedCheck],
    results: Mapping[str, CheckResult],
    level: Level,
    capabilities: Mapping[str, bool | str],
) -> list[RequirementResult]:
    """One result per requirement that a certification at ``level`` counts, in contract order."""
    planned: dict[str, list[PlannedCheck]] = defaultdict(list)
    for check in plan:
        if LEVELS.index(check.level) <= LEVELS.index(level):
            planned[check.requirement].append(check)
    return [
        _requirement_result(requirement, planned[requirement.id], results, capabilities)
        for requirement in requirements.values()
        if in_profile(requirement, level)
    ]


def _requirement_result(
    requirement: Requirement,
    planned: list[PlannedCheck],
    results: Mapping[str, CheckResult],
    capabilities: Mapping[str, bool | str],
) -> RequirementResult:
    applicable = [c for c in planned if not c.capability or capabilities.get(c.capability) is True]
    due = [check for check in applicable if not check.left_out]
    ran = [results[check.id] for check in due if check.id in results]
    ids = [result.id for result in ran]
    if not applicable:
        if not planned:
            return _without_a_check(requirement, capabilities)
        probed = [results[check.id] for check in planned if check.id in results]
        ours = [result for result in probed if result.outcome is Outcome.SUITE_ERROR]
        if ours:
            reason = _reason_of(ours[0])
            return RequirementResult(requirement.id, Outcome.SUITE_ERROR, reason, [ours[0].id])
        return RequirementResult(
            requirement.id, Outcome.NOT_APPLICABLE, _probe_reason(planned, probed, capabilities)
        )
    missing = [check for check in applicable if check.id not in results]
    outcomes = [_outcome_of(result) for result in ran] + [Outcome.NOT_TESTED for _ in missing]
    outcome = worst(outcomes)
    if outcome is Outcome.NOT_TESTED and missing:
        why = next((check.left_out for check in missing if check.left_out), "the run ended early")
        reason = f"{len(missing)} of {len(applicable)} checks did not run: {why}"
        return RequirementResult(requirement.id, outcome, reason, ids)
    worst_ones = [result for result in ran if _outcome_of(result) is outcome]
    reason = _reason_of(worst_ones[0])
    if reason and len(ran) > 1:
        reason = f"{reason} ({len(worst_ones)} of {len(ran)} checks)"
    outcome = counted_as(outcome, requirement)
    failures = [_reason_of(result) for result in ran if result.outcome in BROKEN]
    return RequirementResult(requirement.id, outcome, reason, ids, failures)


def counted_as(outcome: Outcome, requirement: Requirement) -> Outcome:
    """The outcome for the requirement: a SHOULD that fails counts as a warning."""
    warns = outcome is Outcome.FAIL and requirement.level == "SHOULD"
    return Outcome.WARN if warns else outcome


def _without_a_check(
    requirement: Requirement, capabilities: Mapping[str, bool | str]
) -> RequirementResult:
    needs = requirement.capability
    if needs and not any(capabilities.get(name) is True for name in needs):
        reason = _undeclared(needs, capabilities)
        return RequirementResult(requirement.id, Outcome.NOT_APPLICABLE, reason)
    return RequirementResult(requirement.id, Outcome.NOT_TESTED, "there is no check for it")


def _outcome_of(result: CheckResult) -> Outcome:
    return Outcome.WARN if result.outcome is Outcome.PASS and result.warnings else result.outcome


def _reason_of(result: CheckResult) -> str:
    return result.evidence or next(iter(result.warnings), "")


def _undeclared(names: Iterable[str], capabilities: Mapping[str, bool | str]) -> str:
    declared = [f"{name}: {capabilities.get(name, 'not declared')}" for name in names]
    return f"needs a capability ({'; '.join(declared)})" if declared else ""


def _probe_reason(
    planned: list[PlannedCheck],
    probed: list[CheckResult],
    capabilities: Mapping[str, bool | str],
) -> str:
    needs = _undeclared(dict.fromkeys(check.capability for check in planned), capabilities)
    if len(probed) < len(planned):
        return needs
    match worst([result.outcome for result in probed]):
        case Outcome.PASS:
            return f"{needs}; undeclared, but works"
        case Outcome.NOT_TESTED:
            return f"{needs}; not probed: {probed[0].evidence}"
        case _:
            return f"{needs}; probed, and it does not work"


def verdict_of(
    requirements: Mapping[str, Requirement],
    results: Iterable[RequirementResult],
    *,
    complete: bool,
    problems: Iterable[str] = (),
    allow_deviations: bool = False,
) -> Conclusion:
    """The verdict on a certification.

    ``complete`` is False for a run that was interrupted or limited to some checks; ``problems`` are
    invalid waivers. With either of them a plane is never certified.
    """
    results = list(results)
    musts = [result for result in results if requirements[result.id].level == "MUST"]
    ran = [result for result in results if result.checks]
    suite_errors = [f"{r.id}: {r.reason}" for r in results if r.outcome is Outcome.SUITE_ERROR]
    named = {r.id: f"{r.id} {r.outcome}: {requirements[r.id].title}" for r in musts}
    reasons = [
        *(named[r.id] for r in musts if r.outcome in BROKEN),
        *problems,
        *([] if complete else ["the run is partial"]),
        *(named[r.id] for r in musts if r.outcome is Outcome.NOT_TESTED),
    ]
    if suite_errors:
        return Conclusion(Verdict.NOT_CERTIFIED, ExitCode.KIT_FAILED, suite_errors + reasons)
    if not ran:
        return Conclusion(Verdict.NOT_CERTIFIED, ExitCode.NOTHING_RAN, ["nothing ran", *reasons])
    if reasons:
        return Conclusion(Verdict.NOT_CERTIFIED, ExitCode.FAILURE, reasons)
    deviations = [f"{r.id} waived" for r in musts if r.outcome is Outcome.DEVIATION]
    if deviations:
        code = ExitCode.SUCCESS if allow_deviations else ExitCode.FAILURE
        return Conclusion(Verdict.CONDITIONAL, code, deviations)
    assert all(result.outcome in ACCEPTED for result in musts)
    return Conclusion(Verdict.CERTIFIED, ExitCode.SUCCESS, [])

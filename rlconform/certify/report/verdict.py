"""Computes requirement results from check results, and the verdict from those. Pure functions.

CheckResult... ──requirement_results──▶ RequirementResult... ──waivers, verdict_of──▶ Conclusion
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from rlconform._exit_codes import ExitCode
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.root_causes import RootCause
from rlconform.certify.report.waivers import Waiver
from rlconform.certify.results import (
    BROKEN,
    CheckResult,
    Outcome,
    PlannedCheck,
    RequirementResult,
    RunRecord,
    worst,
)
from rlconform.contract import Level, Requirement, includes

#: Outcomes of a MUST with which a plane is certified.
ACCEPTED = frozenset({Outcome.PASS, Outcome.WARN, Outcome.NOT_APPLICABLE})


class Verdict(StrEnum):
    """The verdict of a certificate."""

    CERTIFIED = "certified"
    CONDITIONAL = "conditional"
    NOT_CERTIFIED = "not certified"


@dataclass(frozen=True)
class Conclusion:
    """The verdict, and the reasons that prevent a certificate, worst first."""

    verdict: Verdict
    exit_code: ExitCode
    reasons: list[str]


@dataclass(frozen=True)
class Certificate:
    """The verdict on a plane, and the results behind it."""

    options: CertifyOptions
    run: RunRecord  # the results of the checks
    results: list[RequirementResult]  # of every requirement that the level counts
    conclusion: Conclusion
    causes: Sequence[RootCause] = ()  # the probable defects, those that explain most first
    is_whole: bool = True  # whether every check of the level has run; else none is certified
    waivers: Sequence[Waiver] = ()
    allow_deviations: bool = False  # whether a conditional verdict exits with 0
    created: datetime = field(default_factory=lambda: datetime.now(UTC))


def in_profile(requirement: Requirement, level: Level) -> bool:
    """Whether a certification at ``level`` counts the requirement."""
    return (
        requirement.scope == "plane"
        and requirement.published
        and includes(level, requirement.profile)
    )


def requirement_results(
    requirements: Mapping[str, Requirement],
    plan: Iterable[PlannedCheck],
    results: Mapping[str, CheckResult],
    level: Level,
    capabilities: Mapping[str, bool | str],
) -> list[RequirementResult]:
    """Return a result for each requirement that ``level`` counts, in the contract's order."""
    planned: dict[str, list[PlannedCheck]] = {
        row.id: [] for row in requirements.values() if in_profile(row, level)
    }
    for check in plan:
        if check.requirement in planned and includes(level, check.level):
            planned[check.requirement].append(check)
    broken = {
        result.requirement
        for result in results.values()
        if result.outcome in BROKEN and _applies(result, capabilities)
    } & planned.keys()
    return [
        _requirement_result(requirements[one], checks, results, capabilities, broken)
        for one, checks in planned.items()
    ]


def _applies(check: PlannedCheck | CheckResult, capabilities: Mapping[str, bool | str]) -> bool:
    """Whether the target declares what the check needs; if not, the check is only a probe."""
    return not check.capability or capabilities.get(check.capability) is True


def _requirement_result(
    requirement: Requirement,
    planned: list[PlannedCheck],
    results: Mapping[str, CheckResult],
    capabilities: Mapping[str, bool | str],
    broken: set[str],
) -> RequirementResult:
    applicable = [check for check in planned if _applies(check, capabilities)]
    if not applicable:
        return _probe_result(requirement, planned, results, capabilities)
    ran = [results[check.id] for check in applicable if check.id in results]
    missing = [check for check in applicable if check.id not in results]
    ids = [result.id for result in ran]
    # A failure that leans on another broken requirement comes after those that don't.
    ran.sort(key=lambda result: bool(broken.intersection(result.leans_on) - {requirement.id}))
    outcome = worst([_outcome_of(result) for result in ran] + [Outcome.NOT_TESTED] * len(missing))
    if outcome is Outcome.NOT_TESTED and missing:
        why = next((check.left_out for check in missing if check.left_out), "the run ended early")
        reason = f"{len(missing)} of {len(applicable)} checks did not run: {why}"
        return RequirementResult(requirement.id, outcome, reason, ids)
    worst_ones = [result for result in ran if _outcome_of(result) is outcome]
    reason = _reason_of(worst_ones[0])
    if reason and len(ran) > 1:
        reason = f"{reason} ({len(worst_ones)} of {len(ran)} checks)"
    failures = [_reason_of(result) for result in ran if result.outcome in BROKEN]
    return RequirementResult(
        requirement.id, counted_as(outcome, requirement), reason, ids, failures
    )


def counted_as(outcome: Outcome, requirement: Requirement) -> Outcome:
    """Return the outcome for the requirement: a failed SHOULD counts as a warning."""
    warns = outcome is Outcome.FAIL and requirement.level == "SHOULD"
    return Outcome.WARN if warns else outcome


def _outcome_of(result: CheckResult) -> Outcome:
    return Outcome.WARN if result.outcome is Outcome.PASS and result.warnings else result.outcome


def _reason_of(result: CheckResult) -> str:
    return result.evidence or next(iter(result.warnings), "")


def _probe_result(
    requirement: Requirement,
    planned: list[PlannedCheck],
    results: Mapping[str, CheckResult],
    capabilities: Mapping[str, bool | str],
) -> RequirementResult:
    """Return the result of a requirement without applicable checks; any that ran were probes."""
    capable = any(capabilities.get(name) is True for name in requirement.capability)
    if not planned and (capable or not requirement.capability):
        return RequirementResult(requirement.id, Outcome.NOT_TESTED, "there is no check for it")
    needed = [check.capability for check in planned] or requirement.capability
    declared = [f"{one}: {capabilities.get(one, 'not declared')}" for one in dict.fromkeys(needed)]
    needs = f"needs a capability ({'; '.join(declared)})"
    probed = [results[check.id] for check in planned if check.id in results]
    for result in probed:
        if result.outcome is Outcome.SUITE_ERROR:
            return RequirementResult(
                requirement.id, Outcome.SUITE_ERROR, _reason_of(result), [result.id]
            )
    if probed and len(probed) == len(planned):
        match worst([result.outcome for result in probed]):
            case Outcome.PASS:
                needs += "; undeclared, but works"
            case Outcome.NOT_TESTED:
                needs += f"; not probed: {probed[0].evidence}"
            case _:
                needs += "; probed, and it does not work"
    return RequirementResult(requirement.id, Outcome.NOT_APPLICABLE, needs)


def verdict_of(
    requirements: Mapping[str, Requirement],
    results: Iterable[RequirementResult],
    complete: bool,
    problems: Iterable[str] = (),
    allow_deviations: bool = False,
) -> Conclusion:
    """Return the verdict on a certification.

    ``complete`` is False for a run that was interrupted or limited to some checks; ``problems`` are
    invalid waivers. A partial run and an invalid waiver both prevent a certificate.
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

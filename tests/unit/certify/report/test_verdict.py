"""Requirement results and verdicts are tested with tables of all outcomes and with properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlconform._exit_codes import ExitCode
from rlconform.certify.report.verdict import (
    Conclusion,
    Verdict,
    in_profile,
    requirement_results,
    verdict_of,
)
from rlconform.certify.results import (
    BROKEN,
    SEVERITY,
    CheckResult,
    Outcome,
    PlannedCheck,
    RequirementResult,
    worst,
)
from rlconform.contract import CURRENT_SET, LEVELS, Level, Requirement

MUST = Requirement(
    id="GET-01",
    level="MUST",
    scope="plane",
    title="",
    sentence="",
    why="",
    capability=(),
    profile="unit",
    since=CURRENT_SET,
    excluded="",
    seen=(),
)
SHOULD = replace(MUST, id="GET-02", level="SHOULD")
NEEDS_OBJECTS = replace(MUST, id="GET-03", capability=("objects",))
NEEDS_EITHER = replace(MUST, id="GET-04", capability=("dtype_fp8", "dtype_complex"))

#: The outcomes of a check.
OF_A_CHECK = list(SEVERITY)


def planned(row: Requirement, name: str = "a", capability: str | None = None) -> PlannedCheck:
    """A check of the requirement, and of its capability if it names one."""
    needs = next(iter(row.capability), "") if capability is None else capability
    return PlannedCheck(f"{row.id}::{name}", row.id, needs)


def check_result(check: PlannedCheck, outcome: Outcome, evidence: str = "") -> CheckResult:
    """A result; a WARN is a check that passed with a warning."""
    if outcome is Outcome.WARN:
        warnings = [evidence or "a warning"]
        return CheckResult(check.id, check.requirement, Outcome.PASS, warnings=warnings)
    if outcome is not Outcome.PASS:
        evidence = evidence or outcome.lower()
    return CheckResult(check.id, check.requirement, outcome, evidence=evidence)


def result_of(
    row: Requirement,
    checks: Mapping[PlannedCheck, Outcome | None],
    capabilities: Mapping[str, bool | str] | None = None,
    level: Level = "unit",
) -> RequirementResult:
    """The one result of ``row``; ``None`` is a check without a result."""
    results = {
        check.id: check_result(check, outcome) for check, outcome in checks.items() if outcome
    }
    (result,) = requirement_results({row.id: row}, checks, results, level, capabilities or {})
    return result


def requirement_result(row: Requirement, outcome: Outcome) -> RequirementResult:
    """A requirement's result; it names a check if one ran."""
    idle = outcome in {Outcome.NOT_TESTED, Outcome.NOT_APPLICABLE}
    return RequirementResult(row.id, outcome, "why", [] if idle else [planned(row).id])


def concluded(*results: tuple[Requirement, Outcome], **options: bool) -> Conclusion:
    rows = {row.id: row for row, _ in results}
    results_of_all = [requirement_result(row, outcome) for row, outcome in results]
    return verdict_of(rows, results_of_all, **{"complete": True} | options)  # type: ignore[arg-type]


# -- which requirements count --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "counted"),
    [
        ("unit", {"unit"}),
        ("functional", {"unit", "functional"}),
        ("e2e", {"unit", "functional", "e2e"}),
        ("durability", {"unit", "functional", "durability"}),
    ],
)
def test_a_level_includes_others(level: Level, counted: set[Level]) -> None:
    assert {one for one in LEVELS if in_profile(replace(MUST, profile=one), level)} == counted


@pytest.mark.parametrize("row", [replace(MUST, scope="kit"), replace(MUST, since="draft")])
def test_kit_rows_and_drafts_never_count(row: Requirement) -> None:
    assert requirement_results({row.id: row}, [planned(row)], {}, "e2e", {}) == []


def test_results_are_in_the_contracts_order() -> None:
    rows = {row.id: row for row in (SHOULD, NEEDS_OBJECTS, MUST)}
    assert [result.id for result in requirement_results(rows, [], {}, "unit", {})] == list(rows)


# -- one requirement -----------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OF_A_CHECK)
def test_a_must_has_the_outcome_of_its_check(outcome: Outcome) -> None:
    result = result_of(MUST, {planned(MUST): outcome})
    assert result.outcome is outcome
    assert result.checks == [planned(MUST).id]
    assert bool(result.reason) == (outcome is not Outcome.PASS)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.PASS, Outcome.PASS),
        (Outcome.WARN, Outcome.WARN),
        (Outcome.NOT_TESTED, Outcome.NOT_TESTED),
        (Outcome.FAIL, Outcome.WARN),
        (Outcome.TIMEOUT, Outcome.TIMEOUT),
        (Outcome.CRASH, Outcome.CRASH),
        (Outcome.SUITE_ERROR, Outcome.SUITE_ERROR),
    ],
)
def test_a_broken_should_is_a_warning(outcome: Outcome, expected: Outcome) -> None:
    """The report names a crash or a hang, because it is worse than a failure."""
    assert result_of(SHOULD, {planned(SHOULD): outcome}).outcome is expected


@pytest.mark.parametrize("first", OF_A_CHECK)
@pytest.mark.parametrize("second", OF_A_CHECK)
def test_the_worst_check_decides_and_gives_the_reason(first: Outcome, second: Outcome) -> None:
    checks = {planned(MUST, "a"): first, planned(MUST, "b"): second}
    result = result_of(MUST, checks)
    assert result.outcome is max(first, second, key=SEVERITY.index)
    said = {Outcome.PASS: "", Outcome.WARN: "a warning"}
    reason, _, tally = result.reason.partition(" (")
    assert reason == said.get(result.outcome, result.outcome.lower())
    like = [first, second].count(result.outcome)
    assert tally == (f"{like} of 2 checks)" if reason else "")


def test_the_reason_is_the_first_broken_checks_evidence() -> None:
    checks = [planned(MUST, name) for name in "abc"]
    outcomes = (Outcome.PASS, Outcome.FAIL, Outcome.FAIL)
    results = {
        check.id: check_result(check, outcome, f"evidence of {check.id}")
        for check, outcome in zip(checks, outcomes, strict=True)
    }
    (result,) = requirement_results({MUST.id: MUST}, checks, results, "unit", {})
    assert result.reason == f"evidence of {checks[1].id} (2 of 3 checks)"


@pytest.mark.parametrize("broken_too", [True, False])
def test_a_failure_that_follows_from_another_requirement_is_shown_last(broken_too: bool) -> None:
    checks = [planned(MUST, "follows"), planned(MUST, "own"), planned(NEEDS_OBJECTS, capability="")]
    results = {check.id: check_result(check, Outcome.FAIL, check.id) for check in checks[:2]}
    results[checks[0].id] = replace(results[checks[0].id], leans_on=[MUST.id, NEEDS_OBJECTS.id])
    other = Outcome.FAIL if broken_too else Outcome.PASS
    results[checks[2].id] = check_result(checks[2], other)
    rows = {row.id: row for row in (MUST, NEEDS_OBJECTS)}
    result, _ = requirement_results(rows, checks, results, "unit", {})
    shown = ["GET-01::own", "GET-01::follows"] if broken_too else ["GET-01::follows", "GET-01::own"]
    assert result.failures == shown
    assert result.reason == f"{shown[0]} (2 of 2 checks)"
    assert result.checks == ["GET-01::follows", "GET-01::own"]


@pytest.mark.parametrize("others", [[], [Outcome.PASS], [Outcome.WARN, Outcome.PASS]])
def test_a_check_without_a_result_never_passes(others: list[Outcome]) -> None:
    checks: dict[PlannedCheck, Outcome | None] = {
        planned(MUST, f"ran{n}"): outcome for n, outcome in enumerate(others)
    }
    result = result_of(MUST, checks | {planned(MUST, "missing"): None})
    assert result.outcome is Outcome.NOT_TESTED
    assert result.reason == f"1 of {len(others) + 1} checks did not run: the run ended early"


def test_a_check_that_was_left_out_has_a_reason() -> None:
    left_out = replace(planned(MUST), left_out="not selected")
    result = result_of(MUST, {left_out: None, planned(MUST, "ran"): Outcome.PASS})
    assert result.outcome is Outcome.NOT_TESTED
    assert result.reason == "1 of 2 checks did not run: not selected"


def test_a_failure_outweighs_a_check_that_did_not_run() -> None:
    result = result_of(MUST, {planned(MUST, "a"): None, planned(MUST, "b"): Outcome.FAIL})
    assert (result.outcome, result.reason) == (Outcome.FAIL, "fail")


def test_a_requirement_without_a_check_never_passes() -> None:
    result = result_of(MUST, {})
    assert (result.outcome, result.reason) == (Outcome.NOT_TESTED, "there is no check for it")


def test_a_check_above_the_level_is_not_due() -> None:
    functional = replace(planned(MUST, "processes"), level="functional")
    checks: dict[PlannedCheck, Outcome | None] = {planned(MUST): Outcome.PASS, functional: None}
    assert result_of(MUST, checks, level="unit").outcome is Outcome.PASS
    assert result_of(MUST, checks, level="functional").outcome is Outcome.NOT_TESTED


# -- capabilities --------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OF_A_CHECK)
def test_a_declared_capability_is_judged_as_any_must(outcome: Outcome) -> None:
    result = result_of(NEEDS_OBJECTS, {planned(NEEDS_OBJECTS): outcome}, {"objects": True})
    assert result.outcome is outcome


@pytest.mark.parametrize("checks", [{}, {planned(NEEDS_OBJECTS): None}], ids=["none", "not run"])
def test_a_declared_capability_that_was_not_tested_never_passes(
    checks: dict[PlannedCheck, Outcome | None],
) -> None:
    assert result_of(NEEDS_OBJECTS, checks, {"objects": True}).outcome is Outcome.NOT_TESTED


def test_a_denied_capability_shows_the_vendors_reason() -> None:
    left_out = replace(planned(NEEDS_OBJECTS), left_out="the target declares no objects")
    for checks in ({}, {left_out: None}):
        result = result_of(NEEDS_OBJECTS, checks, {"objects": "no wire code"})
        assert result.outcome is Outcome.NOT_APPLICABLE
        assert result.reason == "needs a capability (objects: no wire code)"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome.PASS, "undeclared, but works"),
        (Outcome.FAIL, "probed, and it does not work"),
        (Outcome.CRASH, "probed, and it does not work"),
        (Outcome.TIMEOUT, "probed, and it does not work"),
    ],
)
def test_an_undeclared_capability_is_probed_and_not_judged(outcome: Outcome, said: str) -> None:
    result = result_of(NEEDS_OBJECTS, {planned(NEEDS_OBJECTS): outcome})
    assert result.outcome is Outcome.NOT_APPLICABLE
    assert result.reason == f"needs a capability (objects: not declared); {said}"


@pytest.mark.parametrize("outcome", [Outcome.NOT_TESTED, None])
def test_a_probe_that_could_not_run_is_reported_as_not_probed(outcome: Outcome | None) -> None:
    for checks in (
        {planned(NEEDS_OBJECTS): outcome},
        {planned(NEEDS_OBJECTS): Outcome.PASS, planned(NEEDS_OBJECTS, "b"): outcome},
    ):
        result = result_of(NEEDS_OBJECTS, checks)
        assert result.outcome is Outcome.NOT_APPLICABLE
        assert "work" not in result.reason


def test_a_probe_with_an_error_of_the_kit_is_a_suite_error() -> None:
    result = result_of(NEEDS_OBJECTS, {planned(NEEDS_OBJECTS): Outcome.SUITE_ERROR})
    assert result.outcome is Outcome.SUITE_ERROR


def test_of_two_capabilities_the_declared_one_is_judged() -> None:
    checks: dict[PlannedCheck, Outcome | None] = {
        planned(NEEDS_EITHER, "fp8", "dtype_fp8"): Outcome.PASS,
        planned(NEEDS_EITHER, "complex", "dtype_complex"): Outcome.FAIL,
    }
    one, other = {"dtype_fp8": True}, {"dtype_complex": True}
    assert result_of(NEEDS_EITHER, checks, one).outcome is Outcome.PASS
    assert result_of(NEEDS_EITHER, checks, other).outcome is Outcome.FAIL
    assert result_of(NEEDS_EITHER, checks, one | other).outcome is Outcome.FAIL
    assert result_of(NEEDS_EITHER, checks).outcome is Outcome.NOT_APPLICABLE


# -- the verdict ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "verdict", "code"),
    [
        (Outcome.PASS, Verdict.CERTIFIED, ExitCode.SUCCESS),
        (Outcome.WARN, Verdict.CERTIFIED, ExitCode.SUCCESS),
        (Outcome.NOT_APPLICABLE, Verdict.CERTIFIED, ExitCode.SUCCESS),
        (Outcome.NOT_TESTED, Verdict.NOT_CERTIFIED, ExitCode.FAILURE),
        (Outcome.FAIL, Verdict.NOT_CERTIFIED, ExitCode.FAILURE),
        (Outcome.CRASH, Verdict.NOT_CERTIFIED, ExitCode.FAILURE),
        (Outcome.TIMEOUT, Verdict.NOT_CERTIFIED, ExitCode.FAILURE),
        (Outcome.DEVIATION, Verdict.CONDITIONAL, ExitCode.FAILURE),
        (Outcome.SUITE_ERROR, Verdict.NOT_CERTIFIED, ExitCode.KIT_FAILED),
    ],
)
def test_one_must_beside_one_that_passes(outcome: Outcome, verdict: Verdict, code: int) -> None:
    conclusion = concluded((MUST, outcome), (NEEDS_OBJECTS, Outcome.PASS))
    assert (conclusion.verdict, conclusion.exit_code) == (verdict, code)
    assert bool(conclusion.reasons) == (verdict is not Verdict.CERTIFIED)


def test_the_table_above_has_every_outcome() -> None:
    (mark,) = test_one_must_beside_one_that_passes.pytestmark
    assert {row[0] for row in mark.args[1]} == set(Outcome)


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.SUITE_ERROR}))
def test_a_should_never_prevents_a_certificate(outcome: Outcome) -> None:
    conclusion = concluded((SHOULD, outcome), (MUST, Outcome.PASS))
    assert conclusion == Conclusion(Verdict.CERTIFIED, ExitCode.SUCCESS, [])


def test_a_suite_error_of_a_should_is_reported() -> None:
    conclusion = concluded((SHOULD, Outcome.SUITE_ERROR), (MUST, Outcome.PASS))
    assert conclusion.verdict is Verdict.NOT_CERTIFIED
    assert conclusion.exit_code == ExitCode.KIT_FAILED
    assert conclusion.reasons == [f"{SHOULD.id}: why"]


def test_suite_errors_come_before_failures() -> None:
    conclusion = concluded((SHOULD, Outcome.SUITE_ERROR), (MUST, Outcome.FAIL), complete=False)
    assert conclusion.exit_code == ExitCode.KIT_FAILED
    assert conclusion.reasons[0].startswith(SHOULD.id)


@pytest.mark.parametrize(
    "results",
    [
        [],
        [(MUST, Outcome.NOT_TESTED)],
        [(MUST, Outcome.NOT_APPLICABLE)],
        [(MUST, Outcome.NOT_TESTED), (SHOULD, Outcome.NOT_APPLICABLE)],
    ],
    ids=len,
)
@pytest.mark.parametrize("complete", [True, False])
def test_nothing_ran(results: list[tuple[Requirement, Outcome]], complete: bool) -> None:
    conclusion = concluded(*results, complete=complete)
    assert conclusion.verdict is Verdict.NOT_CERTIFIED
    assert conclusion.exit_code == ExitCode.NOTHING_RAN
    assert conclusion.reasons[0] == "nothing ran"


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.DEVIATION])
def test_a_partial_run_is_never_certified(outcome: Outcome) -> None:
    conclusion = concluded((MUST, outcome), complete=False, allow_deviations=True)
    assert conclusion.verdict is Verdict.NOT_CERTIFIED
    assert conclusion.exit_code == ExitCode.FAILURE
    assert "the run is partial" in conclusion.reasons


def test_an_invalid_waiver_is_never_certified() -> None:
    results = [requirement_result(MUST, Outcome.PASS)]
    conclusion = verdict_of({MUST.id: MUST}, results, complete=True, problems=["waiver is stale"])
    assert conclusion.verdict is Verdict.NOT_CERTIFIED
    assert conclusion.reasons == ["waiver is stale"]


@pytest.mark.parametrize(("allowed", "code"), [(False, ExitCode.FAILURE), (True, ExitCode.SUCCESS)])
def test_deviations_make_it_conditional(allowed: bool, code: int) -> None:
    results = [(MUST, Outcome.DEVIATION), (NEEDS_OBJECTS, Outcome.PASS)]
    conclusion = concluded(*results, allow_deviations=allowed)
    assert conclusion == Conclusion(Verdict.CONDITIONAL, code, [f"{MUST.id} waived"])


def test_allowing_deviations_does_not_allow_failures() -> None:
    conclusion = concluded(
        (MUST, Outcome.DEVIATION), (NEEDS_OBJECTS, Outcome.FAIL), allow_deviations=True
    )
    assert conclusion.verdict is Verdict.NOT_CERTIFIED
    assert conclusion.exit_code == ExitCode.FAILURE


def test_reasons_are_sorted_worst_first() -> None:
    conclusion = concluded(
        (NEEDS_OBJECTS, Outcome.NOT_TESTED), (MUST, Outcome.FAIL), complete=False
    )
    assert [reason.partition(":")[0] for reason in conclusion.reasons] == [
        "GET-01 FAIL",
        "the run is partial",
        "GET-03 NOT_TESTED",
    ]
    assert conclusion.reasons[0] == f"GET-01 FAIL: {MUST.title}"


# -- properties ----------------------------------------------------------------------------------

RANK = [Verdict.NOT_CERTIFIED, Verdict.CONDITIONAL, Verdict.CERTIFIED]
ROWS = [replace(MUST, id=f"PUT-{n:02}") for n in range(3)]
ROWS += [replace(SHOULD, id=f"TAG-{n:02}") for n in range(2)]

results_of_requirements = st.dictionaries(
    st.sampled_from(ROWS).map(lambda row: row.id), st.sampled_from(list(Outcome))
)


def verdict_on(outcomes: Mapping[str, Outcome], complete: bool, allowed: bool) -> Conclusion:
    rows = {row.id: row for row in [*ROWS, MUST]}
    results = [requirement_result(rows[name], outcome) for name, outcome in outcomes.items()]
    return verdict_of(rows, results, complete=complete, allow_deviations=allowed)


@given(results_of_requirements, st.sampled_from(sorted(BROKEN)), st.booleans(), st.booleans())
def test_one_more_broken_must_never_improves_the_verdict(
    outcomes: dict[str, Outcome], broken: Outcome, complete: bool, allowed: bool
) -> None:
    before = verdict_on(outcomes, complete, allowed)
    after = verdict_on(outcomes | {MUST.id: broken}, complete, allowed)
    assert after.verdict is Verdict.NOT_CERTIFIED
    assert RANK.index(after.verdict) <= RANK.index(before.verdict)
    assert after.exit_code != ExitCode.SUCCESS


@given(results_of_requirements, st.booleans())
def test_exit_code_0_means_certified_or_an_allowed_deviation(
    outcomes: dict[str, Outcome], allowed: bool
) -> None:
    conclusion = verdict_on(outcomes, True, allowed)
    wanted = {Verdict.CERTIFIED} | ({Verdict.CONDITIONAL} if allowed else set())
    assert (conclusion.exit_code == ExitCode.SUCCESS) == (conclusion.verdict in wanted)


@given(
    st.lists(st.sampled_from([*OF_A_CHECK, None]), max_size=4),
    st.sampled_from([Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT, None]),
)
def test_one_more_bad_check_never_improves_a_requirement(
    outcomes: list[Outcome | None], bad: Outcome | None
) -> None:
    checks = {planned(MUST, f"c{n}"): outcome for n, outcome in enumerate(outcomes)}
    before = result_of(MUST, checks).outcome
    after = result_of(MUST, checks | {planned(MUST, "bad"): bad}).outcome
    assert SEVERITY.index(after) >= SEVERITY.index(before)
    assert after not in {Outcome.PASS, Outcome.WARN}


@given(st.lists(st.sampled_from(OF_A_CHECK)))
def test_the_worst_of_outcomes_is_one_of_them(outcomes: list[Outcome]) -> None:
    assert worst(outcomes) in (outcomes or [Outcome.NOT_TESTED])
    assert all(SEVERITY.index(worst(outcomes)) >= SEVERITY.index(outcome) for outcome in outcomes)

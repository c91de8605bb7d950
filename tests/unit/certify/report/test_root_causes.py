"""Root causes are listed first, equal errors count as one cause, and no outcome changes."""

from __future__ import annotations

from rlconform.certify.report.root_causes import RootCause, describe, root_causes, with_followers
from rlconform.certify.results import CheckResult, Outcome, RequirementResult

MUSTS = ["PUT-11", "PUT-12", "CLAIM-02", "CLAIM-04"]


def failed(requirement: str, evidence: str, *leans_on: str, n: int = 0) -> CheckResult:
    return CheckResult(
        f"{requirement}-{n}", requirement, Outcome.FAIL, evidence=evidence, leans_on=[*leans_on]
    )


def results_of(checks: list[CheckResult], passed: tuple[str, ...] = ()) -> list[RequirementResult]:
    ids = sorted({check.requirement for check in checks} | {*passed})
    results = []
    for one in ids:
        said = [check.evidence for check in checks if check.requirement == one]
        outcome = Outcome.FAIL if said else Outcome.PASS
        results.append(RequirementResult(one, outcome, "".join(said[:1]), failures=said))
    return with_followers(results, checks)


def causes_of(checks: list[CheckResult], passed: tuple[str, ...] = ()) -> list[RootCause]:
    return root_causes(results_of(checks, passed), checks, MUSTS)


def test_a_failure_may_follow_from_a_broken_dependency() -> None:
    checks = [failed("CLAIM-04", "got none"), failed("PUT-11", "got none", "CLAIM-04")]
    assert causes_of(checks) == [RootCause(["CLAIM-04"], "got none", ["PUT-11"])]
    by_id = {result.id: result for result in results_of(checks)}
    assert by_id["PUT-11"].may_follow_from == ["CLAIM-04"]
    assert by_id["PUT-11"].outcome is Outcome.FAIL


def test_a_failure_with_sound_dependencies_is_a_root() -> None:
    checks = [failed("PUT-11", "got none", "CLAIM-04")]
    assert causes_of(checks, passed=("CLAIM-04",)) == [RootCause(["PUT-11"], "got none")]


def test_a_requirement_with_one_independent_failure_is_a_root() -> None:
    checks = [
        failed("CLAIM-04", "got none"),
        failed("PUT-11", "got none", "CLAIM-04"),
        failed("PUT-11", "bytes of another row", n=1),
    ]
    assert [cause.requirements for cause in causes_of(checks)] == [["CLAIM-04"], ["PUT-11"]]


def test_followers_of_followers_belong_to_the_root() -> None:
    checks = [
        failed("CLAIM-04", "got none"),
        failed("CLAIM-02", "lost", "CLAIM-04"),
        failed("PUT-12", "lost too", "CLAIM-02"),
    ]
    assert causes_of(checks) == [RootCause(["CLAIM-04"], "got none", ["CLAIM-02", "PUT-12"])]


def test_circular_dependencies_have_a_root() -> None:
    checks = [failed("CLAIM-02", "lost", "CLAIM-04"), failed("CLAIM-04", "none", "CLAIM-02")]
    assert causes_of(checks) == [RootCause(["CLAIM-02"], "lost", ["CLAIM-04"])]


def test_equal_errors_are_one_cause_and_names_and_numbers_do_not_matter() -> None:
    error = "the plane's put_samples raised OperationalError: no transaction in 'p-{}' at {}"
    checks = [
        failed("PUT-11", error.format("0123abcd", 1)),
        failed("PUT-12", error.format("ffff0000", 22)),
        failed("CLAIM-02", "the plane's put_samples raised OperationalError: the disk is full"),
    ]
    first, second = causes_of(checks)
    assert first.requirements == ["PUT-11", "PUT-12"]
    assert describe(first).startswith("2 requirements: OperationalError: no transaction in ")
    assert second.requirements == ["CLAIM-02"]


def test_an_error_of_generated_examples_equals_that_of_others() -> None:
    said = "the plane's put_samples raised OSError: no room"
    by_seed = f"{said} (found with --seed 0, which repeats it)"
    (cause,) = causes_of([failed("PUT-11", by_seed), failed("PUT-12", said)])
    assert cause.requirements == ["PUT-11", "PUT-12"]
    assert describe(cause) == "2 requirements: OSError: no room"


def test_calls_of_one_kind_that_hang_are_one_cause() -> None:
    hung = "{}.claim_meta(partition_id='p-{}', n={}, blocking={}) did not return within 2 s"
    checks = [
        failed("CLAIM-02", hung.format("client", "0123abcd", 7, False)),
        failed("CLAIM-04", hung.format("actor0", "ffff0000", 3, False)),
        failed("PUT-11", hung.format("client", "ffff1111", 3, True)),
    ]
    first, second = causes_of(checks)
    assert first.requirements == ["CLAIM-02", "CLAIM-04"]
    assert describe(first) == "2 requirements: claim_meta, not blocking, did not return in time"
    assert second.requirements == ["PUT-11"]


def test_equal_violations_are_separate_causes() -> None:
    checks = [failed("PUT-11", "expected 1; got 2"), failed("PUT-12", "expected 1; got 2")]
    assert [cause.requirements for cause in causes_of(checks)] == [["PUT-11"], ["PUT-12"]]


def test_musts_come_before_shoulds_and_what_explains_most_comes_first() -> None:
    checks = [
        failed("CLAIM-13", "a SHOULD"),
        failed("CLAIM-02", "explains one"),
        failed("CLAIM-04", "explains two"),
        failed("PUT-11", "follows", "CLAIM-04"),
    ]
    order = [cause.requirements for cause in causes_of(checks)]
    assert order == [["CLAIM-04"], ["CLAIM-02"], ["CLAIM-13"]]

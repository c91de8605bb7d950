"""Finds root causes: which broken requirements are defects, and which are consequences.

    check results ──group equal errors──▶ causes, the ones that explain most first
                  ──leans_on──────────▶ the requirements that may follow from each

It orders the report and changes no outcome: a MUST broken as a consequence is broken all the same.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from rlconform.certify.results import BROKEN, CheckResult, RequirementResult

#: Parts that differ between two reports of the same error: ids, numbers, quoted names.
PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-f]+\b|\bp-[0-9a-f]{8}\b|\d+")
#: Evidence of an error that the plane raised.
_RAISED = re.compile(r"the plane's \w+ raised (.*)", re.DOTALL)
#: Evidence of a call that hung.
_HUNG = re.compile(r"\w+\.(\w+)\((.*)\) did not return within [\d.]+ s", re.DOTALL)
#: The suffix that a generated example adds to the evidence.
_FOUND = re.compile(r" \(found with --seed \d+, [^()]*\)$")


@dataclass(frozen=True)
class RootCause:
    """A probable defect: the requirements that it breaks, and those that may be consequences."""

    requirements: list[str]  # ids that fail with the same error, or one id that fails on its own
    evidence: str  # of the first of their failing checks
    followers: list[str] = field(default_factory=list)  # ids whose failures may all follow


def with_followers(
    results: Sequence[RequirementResult], checks: Iterable[CheckResult]
) -> list[RequirementResult]:
    """Return the results, each with the broken requirements that may have caused all its failures.

    It has such causes if each of its failing checks depends on another broken requirement. Of
    requirements that depend on each other in a circle, the contract's first is a root cause.
    """
    broken = [result.id for result in results if result.failures]
    sources: dict[str, list[set[str]]] = {one: [] for one in broken}
    for check in checks:
        if check.outcome in BROKEN and check.requirement in sources:
            others = sources.keys() & {*check.leans_on} - {check.requirement}
            sources[check.requirement].append(others)
    follows = {
        one: sorted(set().union(*named), key=broken.index) if named and all(named) else []
        for one, named in sources.items()
    }
    reached = {one for one in broken if not follows[one]}  # roots and what follows from them
    for one in broken:
        while more := {other for other in broken if reached.intersection(follows[other])} - reached:
            reached |= more
        if one not in reached:
            follows[one] = []
            reached.add(one)
    return [replace(result, may_follow_from=follows.get(result.id, [])) for result in results]


def root_causes(
    results: Sequence[RequirementResult],
    checks: Iterable[CheckResult],
    must: Iterable[str],
) -> list[RootCause]:
    """Return the causes: MUSTs first, then by the number of requirements that they explain.

    Requirements that fail with the same error of the plane, except for names and numbers, or with
    the same kind of call that hangs, form one cause. ``results`` come from ``with_followers``.
    """
    checks = list(checks)
    order = [result.id for result in results]
    errors = _errors(checks)
    grouped: dict[str, list[RequirementResult]] = defaultdict(list)
    for result in results:
        if result.failures and not result.may_follow_from:
            shared = errors.get(result.id, set())
            key = next(iter(shared)) if len(shared) == 1 else f"{result.id}: on its own"
            grouped[key].append(result)
    causes = [_cause(roots, results) for roots in grouped.values()]
    musts = set(must)

    def rank(cause: RootCause) -> tuple[bool, int, int]:
        explained = len(cause.requirements) + len(cause.followers)
        return not musts & {*cause.requirements}, -explained, order.index(cause.requirements[0])

    return sorted(causes, key=rank)


def _cause(roots: Sequence[RequirementResult], results: Sequence[RequirementResult]) -> RootCause:
    ids = {root.id for root in roots}
    while more := {r.id for r in results if ids.intersection(r.may_follow_from)} - ids:
        ids |= more
    named = [root.id for root in roots]
    followers = [r.id for r in results if r.id in ids and r.id not in named]
    return RootCause(named, roots[0].failures[0], followers)


def _errors(checks: Iterable[CheckResult]) -> dict[str, set[str]]:
    """Return the kinds of errors of the plane in the checks of each broken requirement."""
    errors: dict[str, set[str]] = defaultdict(set)
    for check in checks:
        if check.outcome in BROKEN:
            error = _error(check.evidence)
            kind = PARTICULAR.sub("_", error) if error else f"{check.requirement}: no error"
            errors[check.requirement].add(kind)
    return errors


def _error(evidence: str) -> str:
    """Return the error that the plane raised, or the kind of call that hung; "" without either."""
    if raised := _RAISED.match(evidence):
        return _FOUND.sub("", raised[1])
    hung = _HUNG.match(evidence)
    if hung is None:
        return ""
    method, arguments = hung.groups()
    if method != "claim_meta":
        return f"{method} did not return in time"
    blocking = "not blocking" if "blocking=False" in arguments else "blocking"
    return f"{method}, {blocking}, did not return in time"


def describe(cause: RootCause) -> str:
    """Return the cause in one line: its requirements (or how many), and the error or evidence."""
    error = _error(cause.evidence)
    if len(cause.requirements) == 1 or not error:
        return f"{', '.join(cause.requirements)}: {cause.evidence}"
    return f"{len(cause.requirements)} requirements: {error}"

"""Root causes: which broken requirements stand for a defect, and which may follow from others.

    check results ──group equal errors──▶ causes, those that explain most first
                  ──leans_on──────────▶ the requirements that may follow from each

This orders a report and changes no outcome: a broken MUST is broken, whatever it may follow from.
Pure functions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlconform.certify.results import BROKEN, CheckResult, RequirementResult

#: What two reports of one error differ in: ids, numbers, and quoted names.
_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-f]+\b|\bp-[0-9a-f]{8}\b|\d+")
#: How the evidence of an error that the plane raised begins.
_RAISED = re.compile(r"the plane's \w+ raised (.*)", re.DOTALL)
#: How the evidence of a call that hung begins.
_HUNG = re.compile(r"\w+\.(\w+)\((.*)\) did not return within [\d.]+ s", re.DOTALL)
#: What a generated example adds to the evidence.
_FOUND = re.compile(r" \(found with --seed \d+, [^()]*\)$")


@dataclass(frozen=True)
class RootCause:
    """A probable defect: requirements that fail for themselves, and those that may follow.

    Attributes:
        requirements: Ids that fail by the same error, or one id that fails by itself.
        evidence: What the first of their failing checks says.
        followers: Ids all of whose failures may follow from these.
    """

    requirements: list[str]
    evidence: str
    followers: list[str] = field(default_factory=list)


def with_followers(
    results: Sequence[RequirementResult], checks: Iterable[CheckResult]
) -> list[RequirementResult]:
    """The results, each with the broken requirements from which all its failures may follow.

    A requirement follows if each of its failing checks leans on another broken requirement. Where
    requirements lean on each other in a circle, the first of them in the contract's order stands
    for itself.
    """
    broken = [result.id for result in results if result.failures]
    leaning = _leaning(checks, set(broken))
    follows: dict[str, list[str]] = {}
    for one in broken:
        sources = leaning.get(one, [])
        named = sorted({other for source in sources for other in source}, key=broken.index)
        follows[one] = named if sources and all(sources) else []
    for one in broken:
        if follows[one] and not _reaches_a_root(one, follows):
            follows[one] = []
    return [replace(result, may_follow_from=follows.get(result.id, [])) for result in results]


def _leaning(checks: Iterable[CheckResult], broken: set[str]) -> dict[str, list[list[str]]]:
    """Of each requirement, what its failing checks lean on that is broken as well."""
    leaning: dict[str, list[list[str]]] = defaultdict(list)
    for check in checks:
        if check.outcome in BROKEN:
            named = [one for one in check.leans_on if one in broken and one != check.requirement]
            leaning[check.requirement].append(named)
    return leaning


def _reaches_a_root(start: str, follows: Mapping[str, Sequence[str]]) -> bool:
    seen, waiting = {start}, list(follows[start])
    while waiting:
        one = waiting.pop()
        if not follows[one]:
            return True
        new = [other for other in follows[one] if other not in seen]
        seen.update(new)
        waiting += new
    return False


def root_causes(
    results: Sequence[RequirementResult],
    checks: Iterable[CheckResult],
    must: Iterable[str],
) -> list[RootCause]:
    """The causes of what is broken: MUSTs first, of these the ones that explain most.

    Requirements whose failures are one and the same error of the plane, but for names and numbers,
    or the same kind of call that hangs, make one cause.

    Args:
        results: Of every requirement, from ``with_followers``.
        checks: Results of the checks.
        must: Ids of the requirements that are MUSTs.
    """
    checks = list(checks)
    order = [result.id for result in results]
    errors = _errors(checks)
    grouped: dict[str, list[RequirementResult]] = defaultdict(list)
    for result in results:
        if result.failures and not result.may_follow_from:
            shared = errors.get(result.id, set())
            key = next(iter(shared)) if len(shared) == 1 else f"{result.id}: by itself"
            grouped[key].append(result)
    own = _own_evidence(checks, {result.id for result in results if result.failures})
    causes = [_cause(roots, results, own) for roots in grouped.values()]
    musts = set(must)

    def rank(cause: RootCause) -> tuple[bool, int, int]:
        explained = len(cause.requirements) + len(cause.followers)
        return not musts & {*cause.requirements}, -explained, order.index(cause.requirements[0])

    return sorted(causes, key=rank)


def _own_evidence(checks: Iterable[CheckResult], broken: set[str]) -> dict[str, str]:
    """Of each requirement, what its first failing check says that leans on nothing broken."""
    evidence: dict[str, str] = {}
    for check in checks:
        leans = broken.intersection(check.leans_on) - {check.requirement}
        if check.outcome in BROKEN and not leans:
            evidence.setdefault(check.requirement, check.evidence)
    return evidence


def _cause(
    roots: Sequence[RequirementResult],
    results: Sequence[RequirementResult],
    own: Mapping[str, str],
) -> RootCause:
    ids = {root.id for root in roots}
    while more := {r.id for r in results if ids.intersection(r.may_follow_from)} - ids:
        ids |= more
    named = [root.id for root in roots]
    followers = [r.id for r in results if r.id in ids and r.id not in named]
    return RootCause(named, own.get(named[0], roots[0].failures[0]), followers)


def _errors(checks: Iterable[CheckResult]) -> dict[str, set[str]]:
    """Of each broken requirement the errors of the plane that its checks met, as kinds."""
    errors: dict[str, set[str]] = defaultdict(set)
    for check in checks:
        if check.outcome in BROKEN:
            error = _error(check.evidence)
            kind = _PARTICULAR.sub("_", error) if error else f"{check.requirement}: no error"
            errors[check.requirement].add(kind)
    return errors


def _error(evidence: str) -> str:
    """What the plane raised, or which kind of call hung; "" where it did neither."""
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
    """The cause in one line: how many requirements, and the error or the evidence."""
    error = _error(cause.evidence)
    if len(cause.requirements) == 1 or not error:
        return f"{', '.join(cause.requirements)}: {cause.evidence}"
    return f"{len(cause.requirements)} requirements: {error}"

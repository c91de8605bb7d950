"""What can become of a check and of a requirement."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from rlconform.contract import Level


class Outcome(StrEnum):
    """One word for what came of a check or of a requirement."""

    PASS = "PASS"
    FAIL = "FAIL"  # the plane broke the contract
    CRASH = "CRASH"  # the process that used the plane died
    TIMEOUT = "TIMEOUT"  # the plane did not come back in time
    WARN = "WARN"  # a SHOULD is broken, or a MUST held with a blemish
    NOT_APPLICABLE = "NOT_APPLICABLE"  # needs a capability that the plane doesn't declare
    NOT_TESTED = "NOT_TESTED"  # nothing ran that could tell
    DEVIATION = "DEVIATION"  # broken, and waived with a reason
    SUITE_ERROR = "SUITE_ERROR"  # our fault


#: Outcomes by which a plane breaks a requirement.
BROKEN = frozenset({Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT})

#: Why a check is left out that ``-k`` leaves out.
NOT_SELECTED = "not selected"

#: From best to worst; a requirement takes the worst of its checks.
SEVERITY: tuple[Outcome, ...] = (
    Outcome.PASS,
    Outcome.WARN,
    Outcome.NOT_TESTED,
    Outcome.FAIL,
    Outcome.TIMEOUT,
    Outcome.CRASH,
    Outcome.SUITE_ERROR,
)


def worst(outcomes: list[Outcome]) -> Outcome:
    """The worst of ``outcomes``; ``NOT_TESTED`` when there is none."""
    return max(outcomes, key=SEVERITY.index, default=Outcome.NOT_TESTED)


@dataclass(frozen=True)
class PlannedCheck:
    """A check as collected: what it checks, and why it is left out if it is.

    Attributes:
        id: Path and name below ``suites/``, parameters included.
        requirement: Id of the requirement that it checks.
        capability: Capability that the check needs, or "".
        level: Level of certification from which on it is due.
        left_out: Why it does not run in this certification, or "".
        patience: Seconds that it gets where the target allows its checks less.
    """

    id: str
    requirement: str
    capability: str = ""
    level: Level = "unit"
    left_out: str = ""
    patience: float = 0.0


@dataclass(frozen=True)
class CheckResult:
    """What one check found.

    Attributes:
        id, requirement, capability: As planned.
        outcome: One of PASS, FAIL, CRASH, TIMEOUT, NOT_TESTED, SUITE_ERROR.
        evidence: Expected and came, for people; "" on a pass.
        warnings: Blemishes of a check that held.
        steps: The client calls that led here, oldest first.
        stacks: Thread stacks at a crash or timeout.
        seconds: Wall time, s.
        plane_seconds: Share of ``seconds`` in which at least one call of the plane ran, s.
        start_seconds: Share of ``seconds`` spent on starting and ending planes and processes, s.
        reproducer: Source of a script that repeats the calls, or "".
        at_once: Whether some of these calls ran at the same time, in threads: once may not show it.
        history: What several processes did, one event as JSON a line, or "".
        leans_on: Requirements that the check took for granted where it failed.
    """

    id: str
    requirement: str
    outcome: Outcome
    capability: str = ""
    evidence: str = ""
    warnings: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    stacks: str = ""
    seconds: float = 0.0
    plane_seconds: float = 0.0
    start_seconds: float = 0.0
    reproducer: str = ""
    at_once: bool = False
    history: str = ""
    leans_on: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RequirementResult:
    """What all checks of one requirement come to.

    Attributes:
        id: The requirement.
        outcome: Verdict on it.
        reason: Why, in one line; the evidence of the first broken check on a failure.
        checks: Ids of the checks that ran for it.
        failures: Evidence of each check that the plane broke.
        may_follow_from: Broken requirements from which all its failures may follow.
    """

    id: str
    outcome: Outcome
    reason: str = ""
    checks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    may_follow_from: list[str] = field(default_factory=list)

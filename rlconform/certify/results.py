"""Results of a certification: of each check, of each requirement, and the run as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rlconform.contract import Level


class Outcome(StrEnum):
    """The outcome of a check or of a requirement."""

    PASS = "PASS"
    FAIL = "FAIL"  # the plane broke the contract
    CRASH = "CRASH"  # the process that used the plane died
    TIMEOUT = "TIMEOUT"  # a call or the check did not end in time
    WARN = "WARN"  # a SHOULD is broken, or a check that held warned
    NOT_APPLICABLE = "NOT_APPLICABLE"  # needs a capability that the target doesn't declare
    NOT_TESTED = "NOT_TESTED"  # no check of it ran
    DEVIATION = "DEVIATION"  # broken, and waived with a reason
    SUITE_ERROR = "SUITE_ERROR"  # a defect of rlconform


#: Outcomes by which a plane breaks a requirement.
BROKEN = frozenset({Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT})

#: ``PlannedCheck.left_out`` of a check that ``-k`` deselects.
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
    """A check as pytest collected it.

    Attributes:
        id: Path and name below ``suites/``, parameters included.
        requirement: Id of the requirement that it checks.
        capability: Capability that the check needs, or "".
        level: Lowest level of certification that runs it.
        left_out: Why it does not run in this certification, or "".
        patience: Seconds that it may take even if the target allows less.
    """

    id: str
    requirement: str
    capability: str = ""
    level: Level = "unit"
    left_out: str = ""
    patience: float = 0.0


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Attributes:
        id, requirement, capability: As planned.
        outcome: One of PASS, FAIL, CRASH, TIMEOUT, NOT_TESTED, SUITE_ERROR.
        evidence: ``expected ...; got ...`` as readable text; "" on a pass.
        warnings: SHOULDs that a check which held found violated.
        steps: The client calls up to the outcome, oldest first.
        stacks: Thread stacks at a crash or timeout.
        seconds: Wall time, s.
        plane_seconds: Share of ``seconds`` in which at least one call of the plane ran, s.
        start_seconds: Share of ``seconds`` in which planes and processes started or ended, s.
        reproducer: Source of a script that repeats the calls, or "".
        at_once: Whether threads made some of these calls at the same time, so that running the
            reproducer once may not show the failure.
        history: Operations of several threads or processes, one JSON line each, or "".
        leans_on: Requirements that the failing assertion relies on.
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
    """The verdict on one requirement, from all its checks.

    Attributes:
        id: The requirement.
        outcome: Verdict on it.
        reason: Why, in one line; on a failure the evidence of the first broken check.
        checks: Ids of the checks that ran for it.
        failures: Evidence of each broken check.
        may_follow_from: Broken requirements from which all its failures may follow.
    """

    id: str
    outcome: Outcome
    reason: str = ""
    checks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    may_follow_from: list[str] = field(default_factory=list)


@dataclass
class RunRecord:
    """The results of a run, finished or not.

    Attributes:
        target: The target's description of itself, as the test process reported it.
        plan: Every check collected, also those left out.
        results: Result by check id.
        notes: Remarks for readers of the report.
        fewer_examples: Checks that had no time for all of their generated examples.
        children: Test processes started.
        process_seconds: Time to start test processes, open planes in them, and end both, s.
        seconds: Wall time of the run, s.
        complete: Every planned check has a result.
    """

    target: dict[str, Any] = field(default_factory=dict)
    plan: list[PlannedCheck] = field(default_factory=list)
    results: dict[str, CheckResult] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    fewer_examples: list[str] = field(default_factory=list)
    children: int = 0
    process_seconds: float = 0.0
    seconds: float = 0.0
    complete: bool = False

    @property
    def due(self) -> list[PlannedCheck]:
        """Planned checks that are not left out."""
        return [check for check in self.plan if not check.left_out]

    @property
    def pending(self) -> list[PlannedCheck]:
        """Due checks without a result."""
        return [check for check in self.due if check.id not in self.results]

    def planned(self, check_id: str) -> PlannedCheck:
        """The planned check of this id."""
        return next(check for check in self.plan if check.id == check_id)

    def is_probe(self, check: PlannedCheck | CheckResult) -> bool:
        """Whether the check needs a capability that the target does not declare."""
        declared = self.target.get("capabilities", {})
        return bool(check.capability) and declared.get(check.capability) is not True

"""Results of a certification: of each check, of each requirement, and the run as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from rlconform.certify.judged_runs import JudgedRun
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
    """Return the worst of ``outcomes``; ``NOT_TESTED`` if there are no outcomes."""
    return max(outcomes, key=SEVERITY.index, default=Outcome.NOT_TESTED)


@dataclass(frozen=True)
class PlannedCheck:
    """A check as pytest collected it."""

    id: str  # path and name below ``suites/``, parameters included
    requirement: str  # id of the requirement that it checks
    capability: str = ""  # that the check needs, or ""
    level: Level = "unit"  # lowest level of certification that runs it
    left_out: str = ""  # why it does not run in this certification, or ""
    patience: float = 0.0  # seconds that it may take even if the target allows less


@dataclass(frozen=True)
class CheckResult:
    """The result of one check; ``id``, ``requirement`` and ``capability`` are as planned."""

    id: str
    requirement: str
    outcome: Outcome  # one of PASS, FAIL, CRASH, TIMEOUT, NOT_TESTED, SUITE_ERROR
    capability: str = ""
    evidence: str = ""  # ``expected ...; got ...`` as readable text; "" on a pass
    warnings: list[str] = field(default_factory=list)  # SHOULDs that a passing check found violated
    steps: list[str] = field(default_factory=list)  # client calls up to the outcome, oldest first
    stacks: str = ""  # of all threads at a crash or timeout
    seconds: float = 0.0  # wall time
    plane_seconds: float = 0.0  # share of ``seconds`` in which at least one client call ran
    start_seconds: float = 0.0  # share of ``seconds`` in which planes and processes start or end
    reproducer: str = ""  # source of a script that repeats the calls, or ""
    plain_script: str = ""  # the same without rlconform, or "" if that can't show the failure
    at_once: bool = False  # whether threads overlap, so that the script may not show the failure
    history: str = ""  # operations of several threads or processes, one JSON line each, or ""
    leans_on: list[str] = field(default_factory=list)  # requirements that the assertion relies on
    runs: list[JudgedRun] = field(default_factory=list)  # training runs, judged by their events


@dataclass(frozen=True)
class RequirementResult:
    """The verdict on one requirement, from all its checks."""

    id: str
    outcome: Outcome
    reason: str = ""  # on a failure the evidence of a broken check, its own rather than a follower
    checks: list[str] = field(default_factory=list)  # ids of those that ran
    failures: list[str] = field(default_factory=list)  # evidence of each broken check
    may_follow_from: list[str] = field(default_factory=list)  # if all its failures may follow


@dataclass(frozen=True)
class TimeSplit:
    """A run's wall time in seconds: the total, and three parts that add up to it."""

    total: float
    processes: float  # starting and ending test processes, planes and attached processes
    plane_calls: float  # at least one client call was under way; calls at the same time count once
    kit: float  # the rest: making rows, comparing them, recording calls

    @property
    def kit_share(self) -> float:
        """The share of the total time that rlconform itself used, 0 to 1."""
        return self.kit / self.total if self.total else 0.0


@dataclass
class RunRecord:
    """The results of a run, finished or not."""

    target: dict[str, Any] = field(default_factory=dict)  # its description of itself
    plan: list[PlannedCheck] = field(default_factory=list)  # also the checks that are left out
    results: dict[str, CheckResult] = field(default_factory=dict)  # by id of the check
    notes: list[str] = field(default_factory=list)  # remarks for readers of the report
    fewer_examples: list[str] = field(default_factory=list)  # checks without time for all of them
    jobs: int = 1  # test processes at a time
    children: int = 0  # test processes started
    process_seconds: float = 0.0  # to start test processes, open planes in them, and end both
    share_seconds: float = 0.0  # of all shares of the checks, which run at the same time
    seconds: float = 0.0  # wall time
    complete: bool = False  # whether every planned check has a result

    @property
    def due(self) -> list[PlannedCheck]:
        """Planned checks that are not left out."""
        return [check for check in self.plan if not check.left_out]

    @property
    def pending(self) -> list[PlannedCheck]:
        """Due checks without a result."""
        return [check for check in self.due if check.id not in self.results]

    def leave_out(self, requirement: str, why: str) -> None:
        """Leave out the checks of a requirement that have no result yet, for this reason."""
        pending = {check.id for check in self.pending if check.requirement == requirement}
        self.plan = [
            replace(check, left_out=why) if check.id in pending else check for check in self.plan
        ]

    @property
    def time_split(self) -> TimeSplit:
        """The wall time, split into the plane's, the processes' and rlconform's part.

        Of shares that run at the same time, each second counts by its share of the wall time.
        """
        results = self.results.values()
        at_once = max(1.0, self.share_seconds / self.seconds) if self.seconds else 1.0
        calls = sum(result.plane_seconds for result in results) / at_once
        processes = self.process_seconds + sum(result.start_seconds for result in results)
        processes /= at_once
        return TimeSplit(self.seconds, processes, calls, max(0.0, self.seconds - processes - calls))

    @property
    def judged(self) -> list[tuple[CheckResult, JudgedRun]]:
        """The training runs that were judged by their events, each with its check."""
        return [(result, run) for result in self.results.values() for run in result.runs]

    def planned(self, check_id: str) -> PlannedCheck:
        """Return the planned check with this id."""
        return next(check for check in self.plan if check.id == check_id)

    def is_probe(self, check: PlannedCheck | CheckResult) -> bool:
        """Whether the check needs a capability that the target does not declare."""
        declared = self.target.get("capabilities", {})
        return bool(check.capability) and declared.get(check.capability) is not True

"""What to run, and what a run found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlconform.certify.results import CheckResult, PlannedCheck
from rlconform.contract import Level

#: Folders of the contract checks, below ``suites/``.
CHECKS = (
    "unit/contract",
    "unit/properties",
    "unit/properties",
    "functional/contract",
    "functional/concurrency",
    "e2e/contract",
)


@dataclass(frozen=True)
class CertifyOptions:
    """What to run.

    Attributes:
        spec: The target as the user named it.
        config: Its configuration; empty for the target's own.
        level: Level asked for; ``None`` for what the target declares.
        select: pytest ``-k`` expression, or "".
        check_timeout: Seconds per check in place of the target's, or ``None``.
        seed: What generated examples start from; the same seed makes the same examples.
        checks: Folders and files below ``suites/`` that hold the checks.
        requirements: Only checks of these, or all.
        only: Only the checks of these ids, or all.
        turns: Times that the checks run, each from the next seed, until one of them is broken.
        effort: Share of the usual number of generated examples.
        races: Run the checks that wait for threads to meet at an unlucky moment, too.
        max_failures: Broken checks of MUSTs after which the run stops; ``None`` for no limit.
        max_hangs: Checks in which a kind of call may hang before it is given up; 0 for no limit.
    """

    spec: str
    config: Mapping[str, Any] = field(default_factory=dict)
    level: Level | None = None
    select: str = ""
    check_timeout: float | None = None
    seed: int = 0
    checks: Sequence[str] = CHECKS
    requirements: Sequence[str] = ()
    only: Sequence[str] = ()
    turns: int = 1
    effort: float = 1.0
    races: bool = True
    max_failures: int | None = None
    max_hangs: int = 3


@dataclass
class RunRecord:
    """What a run found.

    Attributes:
        target: The target's description of itself, as the child reported it.
        plan: Every check collected, also those left out.
        results: Result by check id.
        notes: What a reader of the report should know beside the results.
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
        """Checks that this level and target call for."""
        return [check for check in self.plan if not check.left_out]

    def is_probe(self, check: PlannedCheck | CheckResult) -> bool:
        """Whether the check needs a capability that the target does not declare."""
        declared = self.target.get("capabilities", {})
        return bool(check.capability) and declared.get(check.capability) is not True

    @property
    def pending(self) -> list[PlannedCheck]:
        """Due checks without a result."""
        return [check for check in self.due if check.id not in self.results]


#: Hears of a run's events as they come.
Listener = Callable[[RunRecord, dict[str, Any]], None]

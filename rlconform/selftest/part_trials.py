"""Lets drawn plans happen to a part, with each planted defect and rightly, and judges histories.

    PartCase ── plans, drawn ──▶ the real part, or the planted one ── history ──▶ judge ─▶ findings
                                                             judge_findings ◀─────────────────┘

Hypothesis draws plans until one shows the defect for the reason that it declares; the plans are the
same each time. A right part gets as many as a defect at most, and its judge finds nothing in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample

from rlconform.grpo.history_finding import HistoryFinding
from rlconform.mutants.async_parts.part_defect import PartDefect
from rlconform.mutants.defect import Defect, planted
from rlconform.selftest.classify import TrialOutcome, TrialResult, compared, judged_right
from rlconform.selftest.parts import PARTS, Part, part_with

#: Plans that a right part gets, and a defect at most, until one shows it; and at least, so that
#: rules that must not find it have their chance.
MOST_PLANS, _LEAST_PLANS = 400, 50
#: Parts of a history that a proof may have.
_LONGEST_PROOF = 10


@dataclass(frozen=True)
class PartCase:
    """A part to try: with a defect, or a right one."""

    name: str
    part: Part
    defect: PartDefect | None = None

    def attempt(self) -> TrialResult:
        """Try it."""
        if self.defect is None:
            found = PartFindings()
            _look(self.part, found, lambda _: bool(found.first))
            return judge_right_part(self.name, found)
        with planted(self.defect.broken):
            found = _found_of(self.part, self.defect)
        return judge_findings(self.defect, found)


def part_cases(defects: Mapping[str, Defect], *, right: bool) -> list[PartCase]:
    """Return a case for each defect of a part and, if wanted, each right part."""
    cases = [
        PartCase(name, part_with(one.found_by[0]), one)
        for name, one in defects.items()
        if isinstance(one, PartDefect)
    ]
    return cases + [PartCase(f"part {part.name}", part) for part in PARTS if right]


@dataclass
class PartFindings:
    """What the judge has found in all plans: by rule the first, and the one that was looked for."""

    first: dict[str, HistoryFinding] = field(default_factory=dict)
    plans: int = 0
    shown: HistoryFinding | None = None

    @property
    def sentences(self) -> dict[str, str]:
        """What each rule has found first."""
        return {rule: finding.sentence for rule, finding in self.first.items()}

    def note(self, findings: list[HistoryFinding]) -> None:
        """Take note of what the judge has found when a plan has happened."""
        self.plans += 1
        for finding in findings:
            self.first.setdefault(finding.rule, finding)


def _found_of(part: Part, defect: PartDefect) -> PartFindings:
    found, rule = PartFindings(), defect.found_by[0]

    def shows(findings: list[HistoryFinding]) -> bool:
        declared = [one for one in findings if one.rule == rule and defect.evidence in one.sentence]
        found.shown = found.shown or next(iter(declared), None)
        return found.shown is not None and found.plans >= _LEAST_PLANS

    _look(part, found, shows)
    return found


def _look(part: Part, found: PartFindings, enough: Callable[[list[HistoryFinding]], bool]) -> None:
    """Let plans happen until what was found is enough, or all of them have happened."""

    def condition(plan: Any) -> bool:
        findings = part.findings(plan)
        found.note(findings)
        return enough(findings)

    options = settings(
        max_examples=MOST_PLANS,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with suppress(NoSuchExample):
        find(part.plans, condition, settings=options, random=Random(0))


def judge_findings(defect: PartDefect, found: PartFindings) -> TrialResult:
    """Compare what the judge has found with what the defect declares."""

    def evidence() -> tuple[TrialOutcome, str]:
        rule, shown = defect.found_by[0], found.shown
        if shown is None:
            detail = f"{rule}: expected {defect.evidence!r}; got {found.sentences[rule]!r}"
            return TrialOutcome.KILLED_FOR_OTHER_REASON, detail
        size = len(shown.proof)
        if not 1 <= size <= _LONGEST_PROOF:
            detail = f"{rule}: expected a proof of 1 to {_LONGEST_PROOF} parts; got {size}"
            return TrialOutcome.KILLED_FOR_OTHER_REASON, detail
        return TrialOutcome.KILLED, f"{size} part{'s' * (size != 1)} of the history in its proof"

    return compared(defect, found.sentences, evidence)


def judge_right_part(name: str, found: PartFindings) -> TrialResult:
    """Judge a right part: nothing is found."""
    return judged_right(name, found.sentences, f"in {found.plans} plans")

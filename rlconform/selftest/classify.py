"""Pure functions that compare the results of a mutant's checks with what it declares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlconform.certify.results import Outcome, RequirementResult
from rlconform.mutants.defect import Defect
from rlconform.mutants.mutant import Mutant

#: A race counts as killed if at least this share of the seeds kill it.
KILL_SHARE = 0.9


class TrialOutcome(StrEnum):
    """How a trial ended. All outcomes but the first three mean a defect of suite or mutant."""

    KILLED = "killed"
    PASSED = "passed"
    HIDDEN = "in no log, as declared"
    FALSE_ALARM = "false alarm"
    SURVIVED = "survived"
    KILLED_FOR_OTHER_REASON = "killed for another reason"
    KILLED_BY_OTHERS_TOO = "killed by others too"
    SUITE_ERROR = "suite error"


#: The expected outcomes of mutants, of conforming planes and runs, and of what no log can show.
GOOD = frozenset({TrialOutcome.KILLED, TrialOutcome.PASSED, TrialOutcome.HIDDEN})


@dataclass(frozen=True)
class TrialResult:
    """The result of the trial of one mutant or conforming plane.

    ``broken`` has the violated requirements, each with the failure text of its first failed check;
    ``detail`` says in one line what is wrong or, for a race, how many seeds killed it; ``killers``
    has the ids of the checks that showed enough of a mutant, in the gate.
    """

    name: str
    kind: TrialOutcome
    broken: Mapping[str, str]
    seconds: float = 0.0
    detail: str = ""
    killers: Sequence[str] = ()


def judge_mutant(
    name: str,
    mutant: Mutant,
    results: Sequence[RequirementResult],
    complete: bool = True,
    seconds: float = 0.0,
) -> TrialResult:
    """Compare a run's results with what the mutant declares.

    The result is a suite error, neither kill nor survival, if the run has one, ended early, or
    could not run a check (rlconform's processes started late, on a busy machine).
    """
    broken, ours = _broken(results), _our_fault(results, complete)
    missed = [declared for declared in mutant.fails if declared not in broken]
    others = [killer for killer in broken if killer not in {*mutant.fails, *mutant.may_fail}]
    first = next((r.failures for r in results if r.id == mutant.fails[0]), [])
    untested = [r for r in results if r.id in missed and r.outcome is Outcome.NOT_TESTED]
    kind, detail = TrialOutcome.KILLED, ""
    if ours:
        kind, detail = TrialOutcome.SUITE_ERROR, ours
    elif untested:
        kind, detail = TrialOutcome.SUITE_ERROR, f"{untested[0].id}: {untested[0].reason}"
    elif missed:
        kind, detail = TrialOutcome.SURVIVED, f"passed by {', '.join(missed)}"
    elif not any(mutant.evidence in failure for failure in first):
        kind = TrialOutcome.KILLED_FOR_OTHER_REASON
        detail = f"{mutant.fails[0]}: expected {mutant.evidence!r}; got {first[0]!r}"
    elif others:
        kind = TrialOutcome.KILLED_BY_OTHERS_TOO
        detail = "; ".join(f"{other}: {broken[other]}" for other in others)
    return TrialResult(name, kind, broken, seconds, detail)


def judge_reference(
    name: str,
    results: Sequence[RequirementResult],
    complete: bool = True,
    seconds: float = 0.0,
    disregards: Collection[str] = (),
) -> TrialResult:
    """Judge a correct plane's results: it violates no requirement but SHOULDs it ``disregards``."""
    found, ours = _broken(results), _our_fault(results, complete)
    broken = {one: why for one, why in found.items() if one not in disregards}
    kind, detail = TrialOutcome.PASSED, ""
    if ours:
        kind, detail = TrialOutcome.SUITE_ERROR, ours
    elif broken:
        kind = TrialOutcome.FALSE_ALARM
        detail = "; ".join(f"{one}: {why}" for one, why in broken.items())
    return TrialResult(name, kind, broken, seconds, detail)


def compared(
    defect: Defect,
    broken: Mapping[str, str],
    evidence: Callable[[], tuple[TrialOutcome, str]],
    end: str = "",
) -> TrialResult:
    """Compare the rules that found something with what a defect of the trainer declares.

    ``evidence`` judges the reason once these agree. ``end`` is the error with which the trainer
    itself has ended, if it did.
    """
    ended = f"; the trainer ended with {end.partition(':')[0]}" if end else ""
    missed = [rule for rule in defect.found_by if rule not in broken]
    others = [rule for rule in broken if rule not in {*defect.found_by, *defect.may}]
    if defect.hidden and not broken:
        kind, detail = TrialOutcome.HIDDEN, defect.hidden
    elif missed:
        kind, detail = TrialOutcome.SURVIVED, f"passed by {', '.join(missed)}{ended}"
    elif others:
        kind = TrialOutcome.KILLED_BY_OTHERS_TOO
        detail = "; ".join(f"{rule}: {broken[rule]}" for rule in others)
    else:
        kind, detail = evidence()
        detail = f"{detail}{ended}".removeprefix("; ")
    return TrialResult(defect.name, kind, broken, detail=detail)


def judged_right(name: str, broken: Mapping[str, str], otherwise: str = "") -> TrialResult:
    """Judge what is right, in which no rule finds anything; ``otherwise`` is said if none does."""
    kind = TrialOutcome.FALSE_ALARM if broken else TrialOutcome.PASSED
    detail = "; ".join(f"{rule}: {why}" for rule, why in broken.items()) or otherwise
    return TrialResult(name, kind, broken, detail=detail)


def _broken(results: Iterable[RequirementResult]) -> dict[str, str]:
    """Return the violated requirements, SHOULDs included, each with its first failure text."""
    return {result.id: result.failures[0] for result in results if result.failures}


def _our_fault(results: Sequence[RequirementResult], complete: bool) -> str:
    for result in results:
        if result.outcome is Outcome.SUITE_ERROR:
            return f"{result.id}: {result.reason}"
    return "" if complete else "the run ended early"


def enough_kills(kills: int, seeds: int) -> bool:
    """Whether enough seeds killed a race: at least nine of ten."""
    return seeds > 0 and kills >= KILL_SHARE * seeds

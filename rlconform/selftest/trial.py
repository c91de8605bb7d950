"""One target before the suite: once for a defect, a turn for each seed for a race.

try_right     every check ──────────────────▶ results by requirement ──▶ judging
try_once      the short checks of its level ─▶ the same
try_declared  of these, those that must catch it ─▶ the same
try_races     the checks that must catch it, once for each seed ──▶ kills
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from rlconform._resources import resource_dir
from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.runner import PlaneDidNotStart, Runner
from rlconform.certify.options import CHECKS, CertifyOptions
from rlconform.certify.report.verdict import requirement_results
from rlconform.certify.requirement_index import checks_by_requirement
from rlconform.certify.results import BROKEN, Outcome, RequirementResult, RunRecord
from rlconform.contract import Level, load_requirements
from rlconform.mutants.mutant import Mutant

#: Share of the generated examples that right planes meet, unless more are asked for.
EFFORT = 0.2
#: Where the checks are that a defect which always shows is tried by: the short ones. Generated
#: examples come beside them only where that is asked for; ``rlconform certify`` runs everything.
SHORT: Mapping[Level, tuple[str, ...]] = {
    "unit": ("unit/contract",),
    "functional": ("functional/contract", "functional/concurrency"),
}
#: Where the checks are that play races: between threads, and between processes.
RACES: Mapping[Level, tuple[str, ...]] = {
    "unit": ("unit/contract",),
    "functional": ("functional/concurrency",),
}
_TURN = re.compile(r"\bturn(\d+)\b")


@dataclass(frozen=True)
class Trial:
    """What a run came to: results by requirement, and whether nothing is missing."""

    results: list[RequirementResult]
    complete: bool
    seconds: float


@dataclass(frozen=True)
class Races:
    """How often a race was killed.

    Attributes:
        seeds: Turns that ran, whatever came of them.
        kills: Turns in which a check failed for the mutant's own reason.
        errors: What our own faults said.
        seconds: Wall time of the run, s.
        others: What was said in each other turn that failed, for another reason.
    """

    seeds: int
    kills: int
    errors: tuple[str, ...]
    seconds: float
    others: tuple[str, ...] = ()

    @property
    def detail(self) -> str:
        """The rate; where turns failed for another reason, how many and the first one."""
        rate = f"{self.kills} of {self.seeds} seeds"
        if not self.others:
            return rate
        first = textwrap.shorten(self.others[0], 200, placeholder="...")
        return f"{rate}; {len(self.others)} failed for another reason: {first}"


def try_right(spec: str, fork_server: ForkServer, effort: float) -> Trial:
    """Run every check against a right plane; ``effort`` is the share of generated examples."""
    return _trial(CertifyOptions(spec, effort=effort or EFFORT), fork_server)


def try_once(
    spec: str,
    fork_server: ForkServer,
    level: Level,
    effort: float,
    requirements: Sequence[str] = (),
) -> Trial:
    """Run the checks that a defect which always shows is tried by, each once.

    Args:
        spec: The target.
        fork_server: Where its processes come from.
        level: Level that it declares.
        effort: Share of the generated examples beside the short checks; none of them at 0.
        requirements: Only checks of these, or all.
    """
    checks = CHECKS if effort else SHORT[level]
    options = CertifyOptions(
        spec,
        checks=checks,
        requirements=requirements,
        effort=effort or 1.0,
        races=False,
        max_hangs=0,  # each requirement is to show whether it catches the hang
    )
    return _trial(options, fork_server)


def try_declared(spec: str, mutant: Mutant, fork_server: ForkServer) -> Trial:
    """Run the short checks of the requirements that must catch a defect, and no other's."""
    short = sorted({name.partition("::")[0] for name in checks_of(mutant, SHORT)})
    options = CertifyOptions(
        spec, checks=short, requirements=mutant.fails, races=False, max_hangs=0
    )
    return _trial(options, fork_server)


def checks_of(mutant: Mutant, folders: Mapping[Level, tuple[str, ...]]) -> list[str]:
    """The checks in these folders of the requirements that must catch a defect."""
    wanted, where = set(mutant.fails), folders[mutant.level]
    return [name for name, ids in _marks().items() if name.startswith(where) and wanted & ids]


@cache
def _marks() -> Mapping[str, frozenset[str]]:
    """Which check checks what: so only the files that hold one need to be collected."""
    return checks_by_requirement(resource_dir("suites"))


def _trial(options: CertifyOptions, fork_server: ForkServer) -> Trial:
    run = _run(options, fork_server)
    target = run.target
    results = requirement_results(
        load_requirements(), run.plan, run.results, target["level"], target["capabilities"]
    )
    return Trial(results, run.complete, run.seconds)


def try_races(spec: str, mutant: Mutant, fork_server: ForkServer, seeds: int) -> Races:
    """Run the checks that must catch a race until one does, for each seed, on one open plane."""
    options = CertifyOptions(
        spec, checks=RACES[mutant.level], requirements=mutant.fails, turns=seeds
    )
    return counted(_run(options, fork_server), mutant.evidence)


def counted(run: RunRecord, evidence: str) -> Races:
    """How often a run of several turns showed ``evidence``, and what it said where it didn't."""
    killed: dict[str, bool] = {}
    others: dict[str, str] = {}
    errors = []
    for result in run.results.values():
        turn = _TURN.search(result.id)[1]  # type: ignore[index]  # each id has one
        kill = result.outcome in BROKEN and evidence in result.evidence
        killed[turn] = killed.get(turn, False) or kill
        if result.outcome in BROKEN:
            others.setdefault(turn, result.evidence)
        if result.outcome is Outcome.SUITE_ERROR:
            errors.append(f"{result.id}: {result.evidence}")
    if not run.complete:
        errors.append("; ".join(run.notes) or "the run ended early")
    detail = tuple(said for turn, said in others.items() if not killed[turn])
    return Races(len(killed), sum(killed.values()), tuple(errors), run.seconds, detail)


def _run(options: CertifyOptions, fork_server: ForkServer) -> RunRecord:
    try:
        return Runner(options, fork_server=fork_server).certify()
    except PlaneDidNotStart as error:
        return RunRecord(target={"level": "unit", "capabilities": {}}, notes=[str(error)])

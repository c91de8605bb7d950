"""Runs the suite on one target: once, or for a race once for each seed.

try_right     every check ──────────────────▶ results by requirement ──▶ classify
try_once      the short checks of its level ─▶ the same
try_declared  the short checks that must kill the mutant, until they have ─▶ the same
try_races     the checks that must kill the mutant, once for each seed ──▶ kills
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.runner import PlaneDidNotStart, Runner
from rlconform.certify.isolation.shown import Shown
from rlconform.certify.options import CHECKS, CertifyOptions
from rlconform.certify.report.verdict import requirement_results
from rlconform.certify.requirement_index import checks_of_suites
from rlconform.certify.results import BROKEN, Outcome, RequirementResult, RunRecord
from rlconform.contract import Level, load_requirements
from rlconform.mutants.mutant import Mutant

#: Default share of the generated examples for correct planes.
EFFORT = 0.2
#: Folders of the short checks, which must kill every defect that is no race. Generated examples
#: run only on request; ``rlconform certify`` runs everything.
SHORT: Mapping[Level, tuple[str, ...]] = {
    "unit": ("unit/contract",),
    "functional": ("functional/contract", "functional/concurrency"),
    "durability": ("durability/contract",),
}
#: Folders of the scenarios, all of which run if one requirement is asked for.
INTERPLAY: Mapping[Level, tuple[str, ...]] = {
    "unit": ("unit/interplay",),
    "functional": ("functional/interplay",),
}
#: Folder of the checks that show a defect of several hosts: each process fails at once.
SEVERAL_HOSTS = ("functional/contract",)
#: Seconds that a check of scenarios may take: with as many trials at once as a self-test has jobs,
#: the usual time ends the search before the scenario that kills the mutant.
INTERPLAY_S = 900.0
#: Folders of the checks that provoke races: between threads, and between processes.
RACES: Mapping[Level, tuple[str, ...]] = {
    "unit": ("unit/contract",),
    "functional": ("functional/concurrency",),
}
#: ``-k`` expression of the checks of one process whose calls several processes make.
SCATTERED = "scattered"
_TURN = re.compile(r"\bturn(\d+)\b")


@dataclass(frozen=True)
class Trial:
    """The result of a run: results by requirement, and whether the run is complete.

    ``killers`` has the ids of the checks that showed enough of a mutant.
    """

    results: list[RequirementResult]
    complete: bool
    seconds: float
    killers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Races:
    """How often a race was killed in ``seeds`` turns, one for each seed.

    ``kills`` counts the turns in which a check failed for the reason that the mutant declares;
    ``others`` has the failure texts of turns that failed for another reason, ``errors`` the
    errors of the suite.
    """

    seeds: int
    kills: int
    errors: tuple[str, ...]
    seconds: float
    others: tuple[str, ...] = ()

    def __add__(self, more: Races) -> Races:
        """Both together: the same race with further seeds."""
        return Races(
            self.seeds + more.seeds,
            self.kills + more.kills,
            self.errors + more.errors,
            self.seconds + more.seconds,
            self.others + more.others,
        )

    @property
    def detail(self) -> str:
        """The kill rate, then the number and first text of failures for another reason."""
        rate = f"{self.kills} of {self.seeds} seeds"
        if not self.others:
            return rate
        first = textwrap.shorten(self.others[0], 200, placeholder="...")
        return f"{rate}; {len(self.others)} failed for another reason: {first}"


def try_right(spec: str, fork_server: ForkServer, effort: float) -> Trial:
    """Run every check on a correct plane; ``effort`` is the share of the generated examples."""
    return _trial(CertifyOptions(spec, effort=effort or EFFORT), fork_server)


def try_once(
    spec: str,
    fork_server: ForkServer,
    level: Level,
    effort: float,
    requirements: Sequence[str] = (),
    scattered: bool = False,
    interplay: bool = False,
) -> Trial:
    """Run the short checks once, or all checks without races if ``effort`` is above 0.

    ``effort`` is the share of the generated examples. Without
    ``requirements``, the checks of all requirements run. With ``scattered``, several processes make
    the calls of the short checks of one process, and no other checks run. With ``interplay``, the
    scenarios of the level run beside the short checks.
    """
    short = SHORT["unit" if scattered else level] + (INTERPLAY[level] if interplay else ())
    options = CertifyOptions(
        spec,
        level=level,
        select=SCATTERED if scattered else "",
        checks=CHECKS if effort else short,
        requirements=requirements,
        effort=effort or 1.0,
        races=False,
        at_scale=False,
        max_hangs=0,  # no limit on hangs: each requirement must show whether it detects one
    )
    return _trial(options, fork_server)


def try_declared(
    spec: str, mutant: Mutant, fork_server: ForkServer, first: Sequence[str] = ()
) -> Trial:
    """Run only the short checks, or scenarios, of the requirements that must kill the mutant.

    The checks of a requirement end with the first one that fails for the reason declared; those of
    the ids in ``first`` are tried before the others.

    If only several hosts show it, the processes of checks are on those of the Ray that was joined.
    """
    folders = SHORT
    if mutant.interplay:
        folders = INTERPLAY
    elif mutant.several_hosts:
        folders = {"functional": SEVERAL_HOSTS}
    short = sorted({name.partition("::")[0] for name in checks_of(mutant, folders)})
    options = CertifyOptions(
        spec,
        level=mutant.level,
        select=SCATTERED if mutant.scattered else "",
        checks=short,
        requirements=mutant.fails,
        seed=mutant.seed,
        races=False,
        max_hangs=0,
        spread=mutant.several_hosts,
        check_timeout=INTERPLAY_S if mutant.interplay else None,
        first=first,
        enough=enough_of(mutant),
        scripts=False,
        at_scale=False,
    )
    return _trial(options, fork_server)


def enough_of(mutant: Mutant) -> Mapping[str, str]:
    """Return the failure that is enough of each requirement; ``judge_mutant`` asks for the same."""
    first, *others = mutant.fails
    return {first: mutant.evidence, **dict.fromkeys(others, "")}


def checks_of(mutant: Mutant, folders: Mapping[Level, tuple[str, ...]]) -> list[str]:
    """Return the checks in ``folders`` of the requirements that must kill the mutant.

    They are read from the source, so that pytest collects only the files that it needs.
    """
    wanted, where = set(mutant.fails), folders["unit" if mutant.scattered else mutant.level]
    return [
        name for name, ids in checks_of_suites().items() if name.startswith(where) and wanted & ids
    ]


def _trial(options: CertifyOptions, fork_server: ForkServer) -> Trial:
    run = _run(options, fork_server)
    level, capabilities = run.target["level"], run.target["capabilities"]
    results = requirement_results(load_requirements(), run.plan, run.results, level, capabilities)
    shown = Shown(options.enough)
    killers = [one.id for one in run.results.values() if shown.note(one, capabilities)]
    return Trial(results, run.complete, run.seconds, tuple(killers))


def try_races(
    spec: str, mutant: Mutant, fork_server: ForkServer, seeds: int, until_sure: bool = False
) -> Races:
    """On one open plane, run the checks that must kill a race, for each seed until one fails.

    With ``until_sure`` a race that each of the first third of the seeds has killed needs no more.
    """
    first = -(-seeds // 3) if until_sure else seeds
    races = _races(spec, mutant, fork_server, range(first))
    if first == seeds or races.errors or races.kills == first:
        return races
    return races + _races(spec, mutant, fork_server, range(first, seeds))


def _races(spec: str, mutant: Mutant, fork_server: ForkServer, seeds: range) -> Races:
    options = CertifyOptions(
        spec,
        level=mutant.level,
        checks=RACES[mutant.level],
        requirements=mutant.fails,
        seed=seeds.start,
        turns=len(seeds),
    )
    return counted(_run(options, fork_server), mutant.evidence)


def counted(run: RunRecord, evidence: str) -> Races:
    """Count the turns that showed ``evidence``; collect the failure texts of the other turns."""
    killed: dict[str, bool] = {}
    others: dict[str, str] = {}
    errors = []
    for result in run.results.values():
        numbered = _TURN.search(result.id)  # a single turn has no number
        turn = numbered[1] if numbered else "0"
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

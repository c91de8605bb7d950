"""Runs the self-test: trials of planes in parallel jobs, those of the trainer beside them.

main thread   tries the trainer's defects, whose classes replace others in this process
              takes the results of the jobs in between, and then waits for them
job threads   each tries one plane after another, with a fork server of its own
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from queue import SimpleQueue

from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.contract import ConfigError, load_requirements
from rlconform.mutants.mutant import Mutant
from rlconform.selftest.classify import (
    TrialOutcome,
    TrialResult,
    enough_kills,
    judge_mutant,
    judge_reference,
)
from rlconform.selftest.first_checks import first_checks
from rlconform.selftest.shared_ray import SharedRay
from rlconform.selftest.trial import (
    RACES,
    checks_of,
    try_declared,
    try_once,
    try_races,
    try_right,
)

#: Correct planes, and whether they need several processes. All but the built-in ones use rare
#: behaviour that the contract allows.
REFERENCES: Mapping[str, tuple[str, bool]] = {
    "late_shared": ("rlconform.selftest.conforming_shared_planes:LATE", True),
    "late": ("rlconform.selftest.conforming_planes:LATE", False),
    "nested_shared": ("rlconform.selftest.conforming_shared_planes:NESTED", True),
    "backwards_shared": ("rlconform.selftest.conforming_shared_planes:BACKWARDS", True),
    "ray_store": ("ray_store", True),
    "memory": ("memory", False),
    "nested": ("rlconform.selftest.conforming_planes:NESTED", False),
    "backwards": ("rlconform.selftest.conforming_planes:BACKWARDS", False),
}
#: The correct planes of one process that the gate tries instead, and into how many parts it splits
#: each: together they have the rare behaviour of all, and each requirement is tried on one of them.
#: ``nox -s unit`` runs the checks on ``memory``.
GATE_REFERENCES: Mapping[str, tuple[str, int]] = {
    "nested_late": ("rlconform.selftest.conforming_planes:NESTED_LATE", 2),
    "backwards": (REFERENCES["backwards"][0], 1),
}
#: SHOULDs that a correct plane deliberately disregards, so that other checks are seen to allow it.
DISREGARDS: Mapping[str, tuple[str, ...]] = {
    "nested": ("CLAIM-17",),  # metas contain tuples
    "nested_late": ("CLAIM-17",),
    "nested_shared": ("CLAIM-17",),
    "backwards": ("REG-08",),  # registering a partition again drops its rows
}


@dataclass(frozen=True)
class Settings:
    """How much a self-test runs.

    Attributes:
        jobs: Number of parallel trials.
        effort: Share of the generated examples; with 0 only the short checks run.
        gate: Run only the checks that must kill a mutant, and the short checks on a correct plane.
            This shows whether mutants are killed, not whether other requirements fail too.
        until_sure: Try no more seeds of a race once a third of them have killed it each time.
        joined: Whether trials use the Ray at ``RLCONFORM_RAY``, instead of one per job.
    """

    jobs: int = 2
    seeds: int = 20
    effort: float = 0.0
    gate: bool = False
    until_sure: bool = False
    joined: bool = False


@dataclass(frozen=True)
class Case:
    """One target to try: a mutant, or a correct plane if ``mutant`` is None.

    ``several``: the target needs several processes. ``requirements``: only their checks run on a
    correct plane; empty means all. ``disregards``: SHOULDs that a correct plane disregards.
    """

    name: str
    spec: str
    mutant: Mutant | None = None
    several: bool = False
    requirements: Sequence[str] = ()
    disregards: Sequence[str] = ()


def cases(
    mutants: Mapping[str, tuple[str, Mutant]], references: bool, gate: bool = False
) -> list[Case]:
    """Return the targets to try, longest first, so that all jobs end at about the same time.

    The gate leaves out correct planes for several processes: each takes as long as all mutants.
    """
    right = (_in_gate() if gate else _all_right()) if references else []
    longest = sorted(mutants, key=lambda name: _length(mutants[name][1]), reverse=True)
    broken = [(name, *mutants[name]) for name in longest]
    return right + [Case(*each, several=each[2].level != "unit") for each in broken]


def _all_right() -> list[Case]:
    return [
        Case(name, spec, several=several, disregards=DISREGARDS.get(name, ()))
        for name, (spec, several) in REFERENCES.items()
    ]


def _in_gate() -> list[Case]:
    """Return the parts of the correct planes; requirements in turn, as neighbours take as long."""
    planes = [
        Case(f"{name} ({part + 1} of {parts})", spec, disregards=DISREGARDS.get(name, ()))
        for name, (spec, parts) in GATE_REFERENCES.items()
        for part in range(parts)
    ]
    ids = sorted(load_requirements())
    return [
        replace(case, requirements=ids[first :: len(planes)]) for first, case in enumerate(planes)
    ]


def _length(mutant: Mutant) -> tuple[bool, bool, int]:
    """Return the sort key for a trial's duration: race, several processes, number of checks."""
    checks = len(checks_of(mutant, RACES)) if mutant.chance else 0
    return (mutant.chance, mutant.level != "unit", checks)


def run_trials(
    chosen: Sequence[Case],
    settings: Settings,
    record: Callable[[TrialResult], None],
    beside: Iterable[TrialResult] = (),
) -> list[TrialResult]:
    """Try every case; call ``record`` with each result when it is ready.

    ``beside`` makes more results in this thread; they come first in the list that is returned.

    Raise ``ConfigError`` if Ray is needed and not installed. On ``KeyboardInterrupt``, stop every
    process and raise it again.
    """
    started: list[ForkServer | SharedRay] = []
    local = threading.local()
    several = any(case.several for case in chosen)
    if several and find_spec("ray") is None:
        raise ConfigError('some of these need the Python package ray: pip install "rlconform[ray]"')

    def start_job() -> None:
        environment: Mapping[str, str] = {}
        if several and not settings.joined:
            started.append(cluster := SharedRay())
            environment = cluster.environment()
        local.fork_server = ForkServer(environment)
        started.append(local.fork_server)

    results: dict[str, TrialResult] = {}
    finished: SimpleQueue[Future[TrialResult]] = SimpleQueue()
    made: list[TrialResult] = []

    def take() -> None:
        result = finished.get().result()
        results[result.name] = result
        record(result)

    pool = ThreadPoolExecutor(settings.jobs, "trial", initializer=start_job)
    try:
        for case in chosen:
            trial = pool.submit(lambda case=case: _try(case, local.fork_server, settings))  # type: ignore[misc]
            trial.add_done_callback(finished.put)
        for result in beside:
            made.append(result)
            record(result)
            while not finished.empty():
                take()
        while len(results) < len(chosen):
            take()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for one in reversed(started):
            one.close()
        pool.shutdown(wait=True)
    return made + [results[case.name] for case in chosen]


def _try(case: Case, fork_server: ForkServer, settings: Settings) -> TrialResult:
    if case.mutant is None:
        if settings.gate:
            trial = try_once(case.spec, fork_server, "unit", settings.effort, case.requirements)
        else:
            trial = try_right(case.spec, fork_server, settings.effort)
        return judge_reference(
            case.name, trial.results, trial.complete, trial.seconds, case.disregards
        )
    if not case.mutant.chance:
        if settings.gate or case.mutant.several_hosts:  # processes on other hosts fail every check
            first = first_checks().get(case.name, ())
            trial = try_declared(case.spec, case.mutant, fork_server, first)
        else:
            trial = try_once(
                case.spec,
                fork_server,
                case.mutant.level,
                settings.effort,
                scattered=case.mutant.scattered,
                interplay=case.mutant.interplay,
            )
        judged = judge_mutant(case.name, case.mutant, trial.results, trial.complete, trial.seconds)
        return replace(judged, killers=trial.killers)
    races = try_races(case.spec, case.mutant, fork_server, settings.seeds, settings.until_sure)
    detail = races.detail
    kind = TrialOutcome.KILLED if enough_kills(races.kills, races.seeds) else TrialOutcome.SURVIVED
    if races.errors:
        kind, detail = TrialOutcome.SUITE_ERROR, races.errors[0]
    broken = dict.fromkeys(case.mutant.fails, detail) if races.kills else {}
    return TrialResult(case.name, kind, broken, races.seconds, detail)

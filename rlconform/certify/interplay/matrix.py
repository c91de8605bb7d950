"""``InterplayMatrix`` runs scenarios until one breaks a requirement, and makes that one smaller.

    check of a requirement ──▶ failure_of ──▶ batches, until one breaks it or all have run
                                    │             └─▶ differences of other requirements are kept
                                    └──▶ the scenario alone, then without its parts ──▶ the smallest

All checks of a session share one matrix: a scenario runs once, and its last looks test many
requirements. A failure is reported from the last run of the smallest scenario, with its calls only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from random import Random

from rlconform.certify.interplay.covering import covering
from rlconform.certify.interplay.draw import draw, draw_alone, draw_unaware
from rlconform.certify.interplay.processes import Processes
from rlconform.certify.interplay.scenario import InterplayScenario
from rlconform.certify.interplay.scenario_run import (
    ScenarioBatch,
    ScenarioRun,
    in_batches,
    run_batch,
)
from rlconform.certify.properties.excerpt import FailureReport

#: Draws a scenario, with groups or without.
Draw = Callable[[Random, bool], InterplayScenario]

#: Scenarios of a whole run, and of a batch; more would run longer than a step of a CI job may.
SCENARIOS, BATCH = 600, 12
#: Share of them in which the first writer may miss a change; they come last.
UNAWARE_SHARE = 0.2
#: Scenarios of one process, in which most pairs of changes follow each other.
SCENARIOS_ALONE = 150
#: Scenarios from which batches are made; those of a batch need guests of one kind.
WINDOW = 10 * BATCH
#: Of the time that a check may take, the shares that all batches may take: in the plane's own
#: calls, and with the checks' own work on a busy machine. The rest is for shrinking.
PLANE_SHARE, SEARCH_SHARE = 0.2, 0.6
#: Most seconds for making one failing scenario smaller.
SHRINK_S = 10.0


@dataclass(frozen=True)
class InterplayFailure:
    """The smallest batch found that breaks a requirement, and the report of its last run."""

    batch: ScenarioBatch
    scenario: InterplayScenario
    report: FailureReport


class InterplayMatrix:
    """The scenarios of a session.

    Args:
        seed: Seeds the choice of scenarios.
        effort: Share of the usual number of scenarios, in (0, 1].
        groups, objects: Whether the plane claims whole groups, and carries object columns.
        check_s: Seconds that a check may take.
        alone: Whether one process does everything.
    """

    def __init__(
        self,
        seed: int,
        effort: float,
        *,
        groups: bool,
        objects: bool,
        check_s: float,
        alone: bool = False,
    ) -> None:
        self.judged = 0  # scenarios that ran to their end
        self._objects = objects
        usual = SCENARIOS_ALONE if alone else SCENARIOS
        self._batches = planned(seed, max(1, round(usual * effort)), groups, alone)
        self._seconds = self._plane_seconds = 0.0
        self._check_s = check_s
        self._over = False
        self._works = True  # False once the plane has stopped working: nothing more is judged
        self._failures: dict[str, InterplayFailure] = {}

    @property
    def cut_short(self) -> bool:
        """Whether there was no time for all scenarios."""
        return self._late and not self._over

    @property
    def _late(self) -> bool:
        return (
            self._seconds > SEARCH_SHARE * self._check_s
            or self._plane_seconds > PLANE_SHARE * self._check_s
        )

    def failure_of(
        self, requirement: str, processes: Processes, enough: str | None = None
    ) -> InterplayFailure | None:
        """Return the smallest scenario that breaks a requirement; None if none does.

        A scenario whose failure contains the text ``enough`` is not made smaller.
        """
        while requirement not in self._failures and self._works and not self._late:
            batch = next(self._batches, None)
            if batch is None:
                self._over = True
                break
            started, spent = time.monotonic(), processes.recording.plane_seconds
            self._run(batch, processes)
            self._seconds += time.monotonic() - started
            self._plane_seconds += processes.recording.plane_seconds - spent
        found = self._failures.get(requirement)
        if found is None or not self._works:
            return found
        if enough is not None and enough in found.report.text:
            return found
        return _smaller(found, requirement, processes, self._objects)

    def _run(self, batch: ScenarioBatch, processes: Processes) -> None:
        processes.recording.restart(writes_source=False)
        runs = _run_and_clear(batch, processes, self._objects)
        for run in runs:
            if run.difference is not None and run.report is not None:
                failure = InterplayFailure(batch, run.scenario, run.report)
                self._failures.setdefault(run.difference.requirement, failure)
        right = sum(run.difference is None for run in runs)
        self.judged += right
        self._works = right == len(runs) or processes.work()


def planned(seed: int, count: int, groups: bool, alone: bool = False) -> Iterator[ScenarioBatch]:
    """Yield the batches of so many scenarios; the first ones cover most, for a slow plane."""

    def drawing(draw: Draw) -> Callable[[Random], InterplayScenario | None]:
        def possible(random: Random) -> InterplayScenario | None:
            drawn = draw(random, groups)
            return drawn if drawn.possible else None

        return possible

    random = Random(f"interplay {seed}")
    usual = drawing(draw_alone if alone else draw)
    unaware = 0 if alone else round(UNAWARE_SHARE * count)
    chosen = chain(
        islice(covering(random, usual, InterplayScenario.targets), count - unaware),
        islice(covering(random, drawing(draw_unaware), InterplayScenario.unaware_targets), unaware),
    )
    while some := list(islice(chosen, WINDOW)):
        yield from in_batches(some, BATCH)


def _run_and_clear(batch: ScenarioBatch, processes: Processes, objects: bool) -> list[ScenarioRun]:
    try:
        return list(run_batch(batch, processes, objects))
    finally:
        processes.clear()


def _smaller(
    found: InterplayFailure, requirement: str, processes: Processes, objects: bool
) -> InterplayFailure:
    """Run the scenario alone and ever smaller ones, while they break the requirement."""
    deadline = time.monotonic() + SHRINK_S

    def failing(batch: ScenarioBatch) -> InterplayFailure | None:
        processes.recording.restart(writes_source=True)
        for run in _run_and_clear(batch, processes, objects):
            found = run.difference is not None and run.difference.requirement == requirement
            if found and run.report is not None:
                return InterplayFailure(batch, run.scenario, run.report)
        return None

    smallest: InterplayFailure = found
    alone = failing(ScenarioBatch((found.scenario,), at_once=True))
    if alone is None:
        with suppress(StopIteration):
            smallest = next(f for b in _fewer(found) if (f := failing(b)))
        return smallest
    progress = True
    while progress:
        progress = False
        smallest = alone
        for scenario in smallest.scenario.smaller():
            if time.monotonic() > deadline:
                break
            if scenario.possible and (less := failing(ScenarioBatch((scenario,), at_once=True))):
                alone, progress = less, True
                break
    return smallest


def _fewer(found: InterplayFailure) -> Iterator[ScenarioBatch]:
    """Yield the scenario beside one of its neighbours, then the whole batch again."""
    for other in found.batch.scenarios:
        if other is not found.scenario:
            pair = tuple(s for s in found.batch.scenarios if s in {other, found.scenario})
            yield ScenarioBatch(pair, found.batch.at_once)
    yield found.batch

"""``LongRun``: hundreds of random calls on two partitions, each compared with a model.

    number of a step ──▶ one call, drawn from that number and the model ──▶ answer ──▶ judged
                                                                     └────▶ applied to the model

    run of a style ──▶ all answers judged ──▶ right: no check repeats it
                                          └─▶ wrong: each check of the style repeats it, judges
                                              what its requirement says, and leaves out steps

Some defects need many calls, or two unlike calls on the same rows; short sequences miss them. A run
takes as long whether one kind of answer is judged or all are, so the checks of one style share its
runs. Each step has a random generator of its own, so without a step the others make nearly the same
calls: ``run_long_runs`` leaves out steps of a run that fails as long as it still fails.
"""

from __future__ import annotations

import math
import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from hypothesis.errors import Flaky

from rlconform.certify.assertions.expect import FewerExamples
from rlconform.certify.properties.excerpt import FailureReport
from rlconform.certify.properties.long_runs.caller import CallerInMode
from rlconform.certify.properties.long_runs.partition import LongRunPartition
from rlconform.certify.properties.long_runs.plan import (
    ALL,
    LONG_RUNS,
    Judged,
    LongRunProfile,
    RunPlan,
)
from rlconform.certify.properties.runner import PropertyRunner

#: Steps of a run, and of a large or wide one; runs of a style for each check of it.
STEPS, FEWER_STEPS = 300, 90
RUNS = 3
#: How many times as many runs several processes make, as some of theirs are large, and some wide.
TIMES_IF_SEVERAL = 3
#: Seconds of the plane's calls after which a run makes no further step; for each check of a style,
#: also after which its runs end.
LONG_RUNS_S = 1.6
#: Most seconds for all runs of a style; ``PATIENCE_S`` is what a check of them may take.
SEARCH_S, PATIENCE_S = 20.0, 60.0
#: How many partitions a step registers beside the others, and most partitions of a run.
IDLE, PARTITIONS = (1, 1, 3, 30), 300


@dataclass(frozen=True)
class FirstWrongAnswer:
    """The first wrong answer of a run; ``kind`` is None if a call raised instead."""

    kind: Judged | None
    failure: FailureReport


@dataclass
class SharedRuns:
    """The runs of one style that the checks of a process have made on a plane.

    ``made`` has the first wrong answer of each run by its seed. ``over``: time was up, so no check
    makes further runs.
    """

    made: dict[str, FirstWrongAnswer | None] = field(default_factory=dict)
    over: bool = False


class LongRun:
    """One run; its partitions have the same ids, fields and tasks.

    Most steps are on the first two; the others come now and then, and many of them stay idle.
    """

    def __init__(self, runner: PropertyRunner, profile: LongRunProfile, seed: str) -> None:
        self._runner, self._seed = runner, seed
        self._plan = RunPlan(profile, Random(seed), runner)
        client: Any = runner.client
        self._caller: Any = CallerInMode(client, self._plan.mode, self._plan.rng)
        self._name = uuid.uuid4().hex[:8]
        self._partitions = [self._new_partition(suffix) for suffix in ("", "_val")]

    @property
    def wrong(self) -> Judged | None:
        """The kind of the first wrong answer; None if a call raised instead."""
        return self._plan.wrong

    def run(self, steps: Sequence[int]) -> None:
        """Make the steps, then look at all rows. A slow plane gets fewer steps."""
        try:
            self._run(steps)
        finally:
            self._partitions[0].let_go()
            self._caller.close()

    def _run(self, steps: Sequence[int]) -> None:
        first = self._partitions[0]
        first.stand(self._plan.standing)
        if self._plan.large or self._plan.wide:
            steps = [number for number in steps if number < FEWER_STEPS]
        began = self._runner.plane_seconds
        for made, number in enumerate(steps):
            self._runner.check_time()
            if self._runner.plane_seconds - began > LONG_RUNS_S:
                text = f"time for {made} of {len(steps)} calls of a run only"
                warnings.warn(text, FewerExamples, stacklevel=2)
                break
            self._step(number)
            first.end_standing_if_due()
            if self._plan.over:
                return
        for partition in self._partitions:
            partition.look_at_all()

    def _step(self, number: int) -> None:
        self._plan.rng.seed(f"{self._seed} {number}")
        self._runner.reseed(f"{self._seed} {number}")
        chance = self._plan.rng.random()
        if chance < 0.01 and len(self._partitions) < PARTITIONS:
            n, known = self._plan.rng.choice(IDLE), len(self._partitions)
            self._partitions += [self._new_partition(f"_{known + each}") for each in range(n)]
            return
        partition = self._partitions[chance < 0.25]
        if chance > 0.95:
            partition = self._plan.rng.choice(self._partitions)
        getattr(partition, self._plan.next_call())()

    def _new_partition(self, suffix: str) -> LongRunPartition:
        part = self._runner.new_partition(f"p-{self._name}{suffix}")
        return LongRunPartition(self._plan, part.via(self._caller))


def run_long_runs(runner: PropertyRunner, profile: LongRunProfile, shared: SharedRuns) -> None:
    """Make the runs of a profile's style that no check has made; report one that fails by it."""
    checks = sum(each.style == profile.style for each in LONG_RUNS.values())
    times = TIMES_IF_SEVERAL if runner.of_several_processes else 1
    runs = math.ceil(RUNS * runner.effort) * checks * times
    everything = LongRunProfile(profile.style, ALL)

    def fails(seed: str, steps: Sequence[int]) -> bool:
        runner.begin()
        try:
            with runner.watching():
                LongRun(runner, profile, seed).run(steps)
        except Exception as error:
            if runner.failure is None or error is not runner.failure.error:
                raise
            return True
        return False

    def first_wrong_answer(seed: str) -> FirstWrongAnswer | None:
        runner.begin()
        run = None
        try:
            run = LongRun(runner, everything, seed)
            run.run(range(STEPS))
        except Exception as error:
            if not runner.raised_by_plane(error):
                raise
            return FirstWrongAnswer(run.wrong if run else None, runner.failure_of(error))
        return None

    def search() -> None:
        for number in range(runs):
            seed, steps = f"{runner.seed} {profile.style} {number}", list(range(STEPS))
            if seed not in shared.made:
                if shared.over:
                    text = f"time for {number} long runs only, which another check made"
                    warnings.warn(text, FewerExamples, stacklevel=2)
                    return
                shared.made[seed] = first_wrong_answer(seed)
            if (found := shared.made[seed]) is None:
                continue
            if fails(seed, steps):
                if not fails(seed, steps):
                    raise Flaky("the plane answers the same calls in another way")
                fewer_steps(steps, partial(fails, seed))
                return
            if found.kind is None or found.kind in profile.judged:
                runner.failure = found.failure
                raise Flaky("the plane answered the same calls in another way before")

    runner.plane_s = max(runner.plane_s, LONG_RUNS_S * checks * times)
    runner.search_s = SEARCH_S * times
    runner.run(search)
    shared.over |= runner.cut_short


def fewer_steps(steps: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return steps that still fail, of which none of the parts tried can be left out.

    It tries parts of half the steps first, then of a quarter and so on.
    """
    steps = list(steps)
    size = len(steps) // 2
    while size:
        for at in reversed(range(0, len(steps), size)):
            without = steps[:at] + steps[at + size :]
            if fails(without):
                steps = without
        size //= 2
    return steps

"""``LongRun``: hundreds of random calls on two partitions, each compared with a model.

    number of a step ──▶ one call, drawn from that number and the model ──▶ answer ──▶ judged
                                                                     └────▶ applied to the model

Some defects need many calls, or two unlike calls on the same rows; short sequences miss them. Each
step has a random generator of its own, so without a step the others make nearly the same calls:
``run_long_runs`` leaves out steps of a run that fails as long as it still fails.
"""

from __future__ import annotations

import math
import uuid
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from hypothesis.errors import Flaky

from rlconform.certify.assertions.expect import FewerExamples
from rlconform.certify.properties.long_run_partition import LongRunPartition
from rlconform.certify.properties.long_run_plan import LongRunProfile, RunPlan
from rlconform.certify.properties.runner import PropertyRunner

#: Steps of a run; runs of a check.
STEPS = 300
RUNS = 3
#: Seconds of the plane's calls after which a run makes no further step, and a check no further run.
LONG_RUNS_S = 1.6


class LongRun:
    """One run; its partitions have the same ids, fields and tasks."""

    def __init__(self, runner: PropertyRunner, profile: LongRunProfile, seed: str) -> None:
        self._runner, self._seed = runner, seed
        self._plan = RunPlan(profile, Random(seed), runner)
        name = uuid.uuid4().hex[:8]
        self._partitions = [
            LongRunPartition(self._plan, runner.new_partition(f"p-{name}{suffix}"))
            for suffix in ("", "_val")
        ]

    def run(self, steps: Sequence[int]) -> None:
        """Make the steps, then look at all rows. A slow plane gets fewer steps."""
        began = self._runner.plane_seconds
        for made, number in enumerate(steps):
            self._runner.check_time()
            if self._runner.is_slow(began):
                text = f"time for {made} of {len(steps)} calls of a run only"
                warnings.warn(text, FewerExamples, stacklevel=2)
                break
            self._step(number)
            if self._plan.over:
                return
        for partition in self._partitions:
            partition.look_at_all()

    def _step(self, number: int) -> None:
        self._plan.rng.seed(f"{self._seed} {number}")
        partition = self._partitions[self._plan.rng.random() < 0.25]
        getattr(partition, self._plan.next_call())()


def run_long_runs(runner: PropertyRunner, profile: LongRunProfile) -> None:
    """Make the runs of a profile on the plane; leave out steps of a run that fails."""

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

    def search() -> None:
        for number in range(math.ceil(RUNS * runner.effort)):
            seed, steps = f"{runner.stream_seed} {number}", list(range(STEPS))
            if fails(seed, steps):
                if not fails(seed, steps):
                    raise Flaky("the plane answers the same calls in another way")
                fewer_steps(steps, partial(fails, seed))
                return

    runner.plane_s = max(runner.plane_s, LONG_RUNS_S)
    runner.run(search)


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

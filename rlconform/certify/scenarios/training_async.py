"""``AsyncRuns``: asynchronous training through the plane under test, for ASYNC-01 and ASYNC-02.

    on policy    PlaneTrainer ──▶ record ┐
                 AsyncPlaneTrainer ─▶ record ┴─ compare_runs.differences ──▶ verdict
    off policy   AsyncPlaneTrainer ── after each step: rows that gave gradients ──▶ verdict
                 plane ── at the end: rows that are left ──▶ verdict
    events of all three runs ── check_run ──▶ verdict

Import this module only where level e2e runs, see ``training_actors``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import product

from rlconform.certify.assertions.expect import expect, expect_equal
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_unreadable
from rlconform.certify.scenarios.plane_trainer import plane_trainer
from rlconform.certify.scenarios.run_logs import RunLogs
from rlconform.certify.scenarios.training_actors import GROUPS_IN_FLIGHT, SMALL, TrainingActors
from rlconform.contract.fields import ADVANTAGES, INPUT_IDS, PREV_LOGPROBS
from rlconform.grpo.compare_runs import TrainingRecord, differences, run_to_end
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.tasks import Dataloader, build_task
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.trainers.base import StepResult
from rlconform.grpo.trainers.plane import PlaneTrainer
from rlconform.grpo.trainers.plane_policy import TASKS, TRAIN_PARTITION
from rlconform.grpo.training_loop import fit
from rlconform.plane import mint_sample_ids

#: Steps of each run; prompts and rows of a step, as in ``SMALL``.
STEPS = 8
PROMPTS, ROWS = 4, 16

#: Both kinds of runs update the weights once per step, and generate group by group: an
#: asynchronous step has one update, and an engine rounds by its batch.
COMPARABLE = (
    *SMALL,
    f"grpo.max_num_steps={STEPS}",
    f"policy.train_global_batch_size={ROWS}",
    f"generation.batch_size={ROWS // PROMPTS}",
)
ON_POLICY = (
    "async_rl.sampler.max_lookahead_versions=0",
    "async_rl.max_inflight_prompts=1",
    f"async_rl.min_groups_for_streaming_train={PROMPTS}",
    f"async_rl.max_buffered_rollouts={PROMPTS}",
)
OFF_POLICY = (
    "async_rl.sampler.max_lookahead_versions=1",
    f"async_rl.max_inflight_prompts={GROUPS_IN_FLIGHT}",
    f"async_rl.min_groups_for_streaming_train={PROMPTS // 2}",
    f"async_rl.max_buffered_rollouts={2 * PROMPTS}",
    "policy.witness=true",
)


#: Columns that a rollout, a rank and the driver write.
WRITTEN = (INPUT_IDS, PREV_LOGPROBS, ADVANTAGES)


class AsyncRuns:
    """Trains asynchronously through the plane."""

    def __init__(self, actors: TrainingActors, logs: RunLogs) -> None:
        self._plane, self._actors, self._logs = actors.plane, actors.through_plane, logs

    def expect_equal_on_policy(self) -> None:
        """Expect the asynchronous run at staleness 0 to equal the synchronous run bit for bit."""
        due = "a {} run through the plane to its end"
        opened = partial(plane_trainer, self._plane)
        with self._logs.judging("synchronous, group by group") as logged:
            config = load_config("tiny_llama_copy", [*COMPARABLE, logged])
            with opened(PlaneTrainer, config, self._actors, due.format("synchronous")) as trainer:
                expected = run_to_end(trainer)
        with self._logs.judging("asynchronous, on policy") as logged:
            config = load_config("tiny_llama_copy_async", [*COMPARABLE, *ON_POLICY, logged])
            due = due.format("asynchronous")
            with opened(AsyncPlaneTrainer, config, self._actors, due) as later:
                got = run_to_end(later)
            _expect_equal(expected, got)

    def expect_witnessed_off_policy(self) -> None:
        """Expect each group to be trained on once, as written, and no row of the run to be left."""
        with self._logs.judging("asynchronous, one step off policy") as logged:
            self._expect_witnessed(logged)

    def _expect_witnessed(self, logged: str) -> None:
        config = load_config("tiny_llama_copy_async", [*COMPARABLE, *OFF_POLICY, logged])
        due = "an asynchronous run through the plane to its end"
        trained: list[str] = []
        lags: list[float] = []
        with plane_trainer(
            self._plane, AsyncPlaneTrainer, config, self._actors, due, digests=True
        ) as trainer:
            for report in fit(trainer):
                if report.result is not None:
                    passes, without = trainer.policy.witnessed(), trainer.policy.unwitnessed()
                    expect_witnessed(report.step, report.result, passes, without)
                    trained += report.result.sample_ids
                    lags.append(report.metrics["staleness/total/max"])
        dispatched = _dispatched(config)
        expect_equal(sorted(trained), sorted(dispatched), "rows trained on in all steps:")
        if max(lags) < 1:
            raise RuntimeError(f"expected groups that were older than the weights; got {lags}")
        self._expect_empty(dispatched)

    def _expect_empty(self, sample_ids: Sequence[str]) -> None:
        """Expect no row of the run to be readable, and no row at all to be claimable."""
        timeouts = self._plane.target.timeouts
        part = PartitionUnderTest(self._plane.owner(), TRAIN_PARTITION, timeouts)
        for sample_id, column in product(sample_ids, WRITTEN):
            expect_unreadable(partial(part.get, [sample_id], column), sample_id, column)
        left = part.claim(TASKS[0], [INPUT_IDS], ROWS).sample_ids
        expect(not left, "no row of the run to be claimable after its end", left)


def _expect_equal(expected: TrainingRecord, got: TrainingRecord) -> None:
    expect_equal(len(got.reports), len(expected.reports), "steps of the asynchronous run:")
    differing = differences(expected, got)
    expect(
        not differing,
        "an asynchronous run on policy that equals the synchronous run bit for bit",
        f"{len(differing)} differences, first {'; '.join(differing[:3])}",
    )


def expect_witnessed(
    step: int, result: StepResult, passes: Mapping[str, int], without: Collection[str]
) -> None:
    """Expect the gradients of a step to show that each of its rows was trained on once.

    A row whose advantages are all 0 may have given no gradient, so that nothing shows.
    """
    rows = result.sample_ids
    seen = {*passes, *without}
    expect(
        seen == set(rows) and len(seen) == len(rows),
        f"each row of step {step} once in the gradients: {shorten(str(sorted(rows)))}",
        shorten(str(sorted(seen))),
    )
    often = {sample_id: count for sample_id, count in passes.items() if count != 1}
    expect(not often, f"one pass of each row of step {step}", often)
    due = {i for i, advantages in zip(rows, result.advantages, strict=True) if advantages.any()}
    missing = sorted(due & set(without))
    expect(not missing, f"a gradient of each row of step {step} with an advantage", missing)


def _dispatched(config: MasterConfig) -> list[str]:
    """Return the rows of all groups that the run dispatches, if no attempt fails."""
    loader = Dataloader(build_task(config.data, config.grpo.seed, "train"))
    uids = [problem.uid for problem in loader.take(STEPS * PROMPTS)]
    return mint_sample_ids(uids, ROWS // PROMPTS)

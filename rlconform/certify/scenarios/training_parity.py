"""``ParityRuns``: the same training in memory and through the plane under test, for PAR-03.

    ParityRuns ──▶ RunActors without a plane ──▶ record ┐
               ──▶ RunActors with the plane ───▶ record ┴─ compare_runs.differences ──▶ verdict
                                            └──▶ events ── check_run ──▶ verdict

Import this module only where level e2e runs, see ``training_actors``.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from rlconform.certify.assertions.expect import expect, expect_equal
from rlconform.certify.scenarios.plane_trainer import plane_trainer
from rlconform.certify.scenarios.run_logs import RunLogs
from rlconform.certify.scenarios.training_actors import RANKS, SMALL, TrainingActors
from rlconform.grpo.compare_runs import TrainingRecord, differences, run_to_end
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer

STEPS = 10

#: Mean reward that a run must reach in memory; an untrained policy is near 0.1.
LEARNED = 0.9
LAST = 10


class ParityRuns:
    """Trains with and without the plane, compares the runs, and judges those through the plane."""

    def __init__(self, actors: TrainingActors, logs: RunLogs) -> None:
        self._actors, self._logs = actors, logs

    def expect_equal_runs(self, model: str, packing: str) -> None:
        """Expect both runs to have bitwise equal losses, gradient norms, advantages and weights."""
        options = (f"policy.packing.mode={packing}", f"grpo.max_num_steps={STEPS}")
        expected = self._run_in_memory(_small(model, *options))
        with self._logs.judging(f"synchronous, {model}, packing {packing}") as logged:
            got = self._run_under_test(_small(model, *options, logged))
        expect_equal(len(got.reports), STEPS, "steps that were trained")
        _expect_no_difference(expected, got)

    def expect_learning(self, model: str) -> None:
        """Expect a run that is long enough to learn to equal the run in memory.

        Raise ``RuntimeError`` if the run in memory did not learn, which the plane did not cause.
        """
        ranks = f"cluster.dp_size={RANKS}"
        expected = self._run_in_memory(load_config(model, [ranks]))
        reward = fmean(expected.series("train/reward")[-LAST:])
        if reward < LEARNED:
            raise RuntimeError(f"expected a mean reward of {LEARNED} in memory; got {reward:.3f}")
        with self._logs.judging(f"synchronous, {model}, until it has learnt") as logged:
            got = self._run_under_test(load_config(model, [ranks, logged]))
        _expect_no_difference(expected, got)

    def expect_resumed_run(self, folder: Path) -> None:
        """Expect a run that is resumed halfway from a checkpoint to equal an unbroken run."""
        half = STEPS // 2
        whole, resumed = (f"grpo.max_num_steps={steps}" for steps in (STEPS, half))
        saved = (
            "checkpointing.enabled=true",
            f"checkpointing.checkpoint_dir={folder}",
            f"checkpointing.save_period={half}",
        )
        expected = self._run_in_memory(_small("tiny_llama_copy", whole))
        with self._logs.judging("synchronous, resumed") as logged:
            self._run_under_test(_small("tiny_llama_copy", *saved, resumed, logged))
            got = self._run_under_test(_small("tiny_llama_copy", *saved, whole, logged))
        expect_equal(len(got.reports), STEPS - half, "steps that were trained after resuming")
        _expect_no_difference(expected, got)

    def _run_under_test(self, config: MasterConfig) -> TrainingRecord:
        """Train through the plane; errors are violations, as training in memory succeeded."""
        due = "a run through the plane, as in memory"
        plane, actors = self._actors.plane, self._actors.through_plane
        with plane_trainer(plane, PlaneTrainer, config, actors, due) as trainer:
            return run_to_end(trainer)

    def _run_in_memory(self, config: MasterConfig) -> TrainingRecord:
        return run_to_end(LegacyTrainer(config, self._actors.in_memory))


def _small(model: str, *overrides: str) -> MasterConfig:
    return load_config(model, [*SMALL, *overrides])


def _expect_no_difference(expected: TrainingRecord, got: TrainingRecord) -> None:
    differing = differences(expected, got)
    expect(
        not differing,
        "a run through the plane that equals the run in memory bit for bit",
        f"{len(differing)} differences, first {'; '.join(differing[:3])}",
    )

"""``ParityRuns``: the same training in memory and through the plane under test, for PAR-03.

    ParityRuns ──▶ RunActors without a plane ──▶ record ┐
               ──▶ RunActors with the plane ───▶ record ┴─ compare_runs.differences ──▶ verdict

Both groups of actors are started once and serve all runs, those of ``training_async`` too. Runs are
made one after the other. The reference GRPO needs transformers, so import this module only where
level e2e runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from rlconform.certify.assertions.expect import expect, expect_equal
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.scenarios.plane_trainer import plane_trainer
from rlconform.grpo.actors import RunActors
from rlconform.grpo.compare_runs import TrainingRecord, differences, run_to_end
from rlconform.grpo.config import ClusterConfig, MasterConfig, load_config
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker

RANKS = 2
STEPS = 10

#: Groups that an asynchronous run may generate at the same time.
GROUPS_IN_FLIGHT = 4

#: Mean reward that a run must reach in memory; an untrained policy is near 0.1.
LEARNED = 0.9
LAST = 10

#: A run of a few seconds that uses every feature of a step: several updates of several
#: micro-batches on each rank, a reference policy, importance weights, rows of several lengths.
SMALL = (
    f"cluster.dp_size={RANKS}",
    "grpo.num_prompts_per_step=4",
    "grpo.num_generations_per_prompt=4",
    "policy.train_global_batch_size=8",
    "policy.train_micro_batch_size=2",
    "policy.logprob_batch_size=3",
    "policy.make_sequence_length_divisible_by=4",
    "policy.packing.train_mb_tokens=24",
    "policy.packing.logprob_mb_tokens=40",
    "data.digits=3",
    "data.max_length=3",
    "generation.max_new_tokens=6",
    "loss_fn.reference_policy_kl_penalty=0.01",
    "loss_fn.use_importance_sampling_correction=true",
    "loss_fn.truncated_importance_sampling_type=tis",
    "loss_fn.truncated_importance_sampling_ratio=2.0",
)


class ParityRuns:
    """Trains with and without the plane, and compares the runs."""

    def __init__(self, plane: PlaneSession, in_memory: RunActors, through_plane: RunActors) -> None:
        self.plane, self.through_plane, self._in_memory = plane, through_plane, in_memory

    def expect_equal_runs(self, model: str, packing: str) -> None:
        """Expect both runs to have bitwise equal losses, gradient norms, advantages and weights."""
        config = _small(model, f"policy.packing.mode={packing}", f"grpo.max_num_steps={STEPS}")
        expected = self._run_in_memory(config)
        got = self._run_under_test(config)
        expect_equal(len(got.reports), STEPS, "steps that were trained")
        _expect_no_difference(expected, got)

    def expect_learning(self, model: str) -> None:
        """Expect a run that is long enough to learn to equal the run in memory.

        Raise ``RuntimeError`` if the run in memory did not learn, which the plane did not cause.
        """
        config = load_config(model, [f"cluster.dp_size={RANKS}"])
        expected = self._run_in_memory(config)
        reward = fmean(expected.series("train/reward")[-LAST:])
        if reward < LEARNED:
            raise RuntimeError(f"expected a mean reward of {LEARNED} in memory; got {reward:.3f}")
        _expect_no_difference(expected, self._run_under_test(config))

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
        self._run_under_test(_small("tiny_llama_copy", *saved, resumed))
        got = self._run_under_test(_small("tiny_llama_copy", *saved, whole))
        expect_equal(len(got.reports), STEPS - half, "steps that were trained after resuming")
        _expect_no_difference(expected, got)

    def _run_under_test(self, config: MasterConfig) -> TrainingRecord:
        """Train through the plane; errors are violations, as training in memory succeeded."""
        due = "a run through the plane, as in memory"
        with plane_trainer(self.plane, PlaneTrainer, config, self.through_plane, due) as trainer:
            return run_to_end(trainer)

    def _run_in_memory(self, config: MasterConfig) -> TrainingRecord:
        return run_to_end(LegacyTrainer(config, self._in_memory))


def _small(model: str, *overrides: str) -> MasterConfig:
    return load_config(model, [*SMALL, *overrides])


def _expect_no_difference(expected: TrainingRecord, got: TrainingRecord) -> None:
    differing = differences(expected, got)
    expect(
        not differing,
        "a run through the plane that equals the run in memory bit for bit",
        f"{len(differing)} differences, first {'; '.join(differing[:3])}",
    )


@contextmanager
def start_parity_runs(plane: PlaneSession) -> Iterator[ParityRuns]:
    """Start both groups of actors, and end them after the block."""
    plane.owner()  # starts Ray, where none runs
    with plane.starting.running():
        cluster = ClusterConfig(dp_size=RANKS)
        in_memory = RunActors(PolicyWorker, RolloutWorker, cluster)
        through_plane = RunActors(
            PlanePolicyWorker, PlaneRolloutWorker, cluster, groups_in_flight=GROUPS_IN_FLIGHT
        )
    try:
        yield ParityRuns(plane, in_memory, through_plane)
    finally:
        with plane.starting.running():
            through_plane.shutdown()
            in_memory.shutdown()

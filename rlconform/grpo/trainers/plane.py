"""``PlaneTrainer``: GRPO whose driver sees names, tags and two columns; the plane has the rows.

    problems ──▶ rollout actor ── first write ──▶ plane
                      └── meta, carry ──▶ driver     rewards, baseline, std, which rows to drop
    shards of the meta ──▶ ranks ── fetch, write one column back ──▶ plane
    two columns ──▶ driver ── advantages, mask ──▶ plane
    shards of the meta ──▶ ranks ── fetch ──▶ an update each

Each call waits for the actors that it asks, and they for the plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import ADVANTAGES, GENERATION_LOGPROBS, PREV_LOGPROBS
from rlconform.grpo.actors import RunActors
from rlconform.grpo.algorithm.dynamic_sampling import STD, Selection, TooManyGenBatches
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.rollout.worker import RowSummary
from rlconform.grpo.tasks import Problem, Split
from rlconform.grpo.trainers.base import StepResult, Trainer
from rlconform.grpo.trainers.driver_step import (
    BASELINE,
    REWARD,
    Carries,
    Generated,
    advantages_and_mask,
    chosen,
    scored,
    step_metrics,
    validation_metrics,
    with_width,
)
from rlconform.grpo.trainers.plane_policy import TRAIN_PARTITION, VAL_PARTITION, PlanePolicy


class PlaneTrainer(Trainer):
    """A run whose rows travel through a data plane; see ``Trainer``.

    Args:
        config: The run's.
        crew: Of ``PlanePolicyWorker`` and ``PlaneRolloutWorker``.
        client: The driver's, which owns the plane; whoever opened it closes it.
        attach: Opens a client in an actor.
    """

    def __init__(
        self, config: MasterConfig, crew: RunActors, client: DataPlaneClient, attach: Attach
    ) -> None:
        super().__init__(config, crew)
        self._policy = PlanePolicy(crew, config, client, attach, self.pad_token_id)

    def step(self) -> StepResult:
        """One step."""
        with self.stopwatch.stage("prepare"):
            self._policy.prepare_step()

        with self.stopwatch.stage("generation"):
            generated = self._generate()
            meta = generated.meta

        with self.stopwatch.stage("prev_logprobs"):
            self._policy.get_logprobs_from_meta(meta)

        if self.config.loss_fn.needs_reference_policy:
            with self.stopwatch.stage("reference_logprobs"):
                self._policy.get_reference_policy_logprobs_from_meta(meta)

        with self.stopwatch.stage("advantages"):
            read = self._policy.read_from_dataplane(meta, [PREV_LOGPROBS, GENERATION_LOGPROBS])
            targets = advantages_and_mask(
                generated, read[PREV_LOGPROBS], read[GENERATION_LOGPROBS], self.config
            )
            meta = self._policy.write_to_dataplane(meta, targets.columns)

        with self.stopwatch.stage("train"):
            updates = self._policy.train_from_meta(meta)

        with self.stopwatch.stage("refit"):
            self.finish_update()

        with self.stopwatch.stage("finish"):
            self._policy.finish_step(meta)

        metrics = step_metrics(generated, targets, updates) | self.stopwatch.take("step")
        return StepResult(
            meta.sample_ids, targets.columns[ADVANTAGES], metrics | self._policy.traffic()
        )

    def _generate(self) -> Generated:
        """Rollouts until the step is full; rows that are not trained on leave the plane."""
        collected, carry = None, Carries()
        for gen_batches in count(1):
            meta, of_rows = self._collect(self.next_problems(), "train", TRAIN_PARTITION)
            carry.update(zip(meta.sample_ids, of_rows, strict=True))
            generated = scored(meta, carry, self.config)
            self._policy.stamp_tags(generated, [REWARD, BASELINE, STD])
            selection = self._chosen(collected, generated, gen_batches)
            self._policy.discard_samples(selection.cleared)
            if selection.complete:
                break
            collected = selection.kept
        return Generated(with_width(selection.kept, self.config), carry, gen_batches)

    def _collect(
        self, problems: Sequence[Problem], split: Split, partition_id: str
    ) -> tuple[KVBatchMeta, list[RowSummary]]:
        meta, carry = self.crew.rollouts("collect_to_plane", problems, split, partition_id)
        return meta, carry

    def _chosen(
        self, collected: KVBatchMeta | None, generated: KVBatchMeta, gen_batches: int
    ) -> Selection:
        """``chosen``; a step that is given up leaves no rows behind."""
        try:
            return chosen(collected, generated, gen_batches, self.config.grpo)
        except TooManyGenBatches as error:
            self._policy.discard_samples(error.sample_ids)
            raise

    def validate(self) -> dict[str, float]:
        """Validation metrics; its rows have a partition of their own."""
        problems = self.validation_problems()
        with self.stopwatch.stage("validation"):
            self._policy.prepare_val_partition(len(problems))
            meta, carry = self._collect(problems, "val", VAL_PARTITION)
            self._policy.finish_step(meta)
        return validation_metrics(carry) | self.stopwatch.take()

    def shutdown(self) -> None:
        """Detach the crew from the plane."""
        self._policy.shutdown()

"""``PlaneTrainer``: GRPO with rows in a data plane; the driver reads metas, tags and logprobs.

    problems ──▶ rollout worker ── first write ──▶ plane
                       └── meta, row summaries ──▶ driver: rewards, baseline, std, rows to drop
    shards of the meta ──▶ ranks ── fetch, write one column back ──▶ plane
    logprobs ──▶ driver ── advantages, mask ──▶ plane
    shards of the meta ──▶ ranks ── fetch ──▶ one update per global batch

Each call blocks the driver until the actors have answered; the actors wait for the plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import ADVANTAGES
from rlconform.grpo.actors import RunActors
from rlconform.grpo.algorithm.dynamic_sampling import STD, TooManyGenBatches
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import RowSummary
from rlconform.grpo.tasks import Problem, Split
from rlconform.grpo.trainers.base import StepResult, Trainer
from rlconform.grpo.trainers.driver_step import (
    BASELINE,
    REWARD,
    RowSummaries,
    StepRows,
    advantages_and_mask,
    driver_fields,
    prompts_to_generate,
    score_rollout,
    select_rows,
    set_padded_width,
    step_metrics,
    validation_metrics,
)
from rlconform.grpo.trainers.performance import performance
from rlconform.grpo.trainers.plane_policy import TRAIN_PARTITION, VAL_PARTITION, PlanePolicy
from rlconform.grpo.trainers.step_groups import StepGroups


class PlaneTrainer(Trainer):
    """Trains with rows in a data plane, on ``PlanePolicyWorker`` and ``PlaneRolloutWorker`` actors.

    ``client`` owns the plane; the caller closes ``client``. ``attach`` opens a client in an actor.
    """

    def __init__(
        self, config: MasterConfig, actors: RunActors, client: DataPlaneClient, attach: Attach
    ) -> None:
        super().__init__(config, actors)
        self._policy = PlanePolicy(actors, config, client, attach, self.pad_token_id, self.events)

    def step(self) -> StepResult:
        """Run one step: generate rows, compute logprobs and advantages, train, refit the engine."""
        with self.timer.stage("prepare"):
            group = self.config.grpo.num_generations_per_prompt
            self._policy.prepare_step(prompts_to_generate(self.config.grpo) * group, group)

        with self.timer.stage("generation"):
            groups = self.step_groups()
            generated = self._generate(groups)
            groups.selected(generated)
            meta = generated.meta

        with self.timer.stage("prev_logprobs"):
            self._policy.get_logprobs_from_meta(meta)

        if self.config.loss_fn.needs_reference_policy:
            with self.timer.stage("reference_logprobs"):
                self._policy.get_reference_policy_logprobs_from_meta(meta)

        with self.timer.stage("advantages"):
            fields = driver_fields(self.config)
            read = self._policy.read_from_dataplane(meta, fields)
            prev, engine, *reference = (read[name] for name in fields)
            targets = advantages_and_mask(generated, prev, engine, self.config, *reference)
            meta = self._policy.write_to_dataplane(meta, targets.columns)

        with self.timer.stage("train"):
            updates = self._policy.train_from_meta(meta)
        groups.trained()

        with self.timer.stage("refit"):
            self.finish_update()

        with self.timer.stage("finish"):
            self._policy.finish_step(meta)
        groups.cleared()

        times = self.timer.take("step")
        metrics = step_metrics(generated, targets, updates) | times
        metrics |= performance(generated.meta, updates, times["time/train"])
        return StepResult(
            meta.sample_ids, targets.columns[ADVANTAGES], metrics | self._policy.traffic()
        )

    def _generate(self, groups: StepGroups) -> StepRows:
        """Collect rollouts until the step has all of its rows; clear dropped rows in the plane."""
        collected, summaries = None, RowSummaries()
        for gen_batches in count(1):
            problems = self.next_problems()
            groups.dispatched(problems)
            meta, new = self._collect(problems, "train", TRAIN_PARTITION)
            summaries.update(zip(meta.sample_ids, new, strict=True))
            generated = score_rollout(meta, summaries, self.config)
            groups.generated(StepRows(generated, summaries, gen_batches))
            self._policy.stamp_tags(generated, [REWARD, BASELINE, STD])
            try:
                selection = select_rows(collected, generated, gen_batches, self.config.grpo)
            except TooManyGenBatches as error:
                self._policy.discard_samples(error.sample_ids)
                raise
            self._policy.discard_samples(selection.cleared)
            if selection.complete:
                break
            collected = selection.kept
        return StepRows(set_padded_width(selection.kept, self.config), summaries, gen_batches)

    def _collect(
        self, problems: Sequence[Problem], split: Split, partition_id: str
    ) -> tuple[KVBatchMeta, list[RowSummary]]:
        return self.actors.call_rollout_worker(
            PlaneRolloutWorker.collect_to_plane, problems, split, partition_id
        )

    def validate(self) -> dict[str, float]:
        """Generate answers in a separate partition; return metrics ``val/...`` and times."""
        generations = self.config.grpo.val_num_generations_per_prompt
        summaries = list[RowSummary]()
        with self.timer.stage("validation"):
            for problems in self.validation_batches():
                self._policy.prepare_val_partition(len(problems) * generations)
                meta, new = self._collect(problems, "val", VAL_PARTITION)
                self._policy.finish_step(meta)
                summaries += new
        return validation_metrics(summaries, generations) | self.timer.take()

    def shutdown(self) -> None:
        """Detach the actors from the plane."""
        self._policy.shutdown()
        super().shutdown()

"""``LegacyTrainer``: GRPO with every batch in the driver's memory, without a data plane.

    problems ──▶ rollout worker ── rows ──▶ driver ── shards ──▶ ranks ── logprobs ──▶ driver
                                              └────── shards ──▶ ranks: one update per batch

Each call blocks the driver until the actors that it called have answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.nn import functional

from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import (
    ADVANTAGES,
    GLOBAL_FORWARD_PAD_SEQLEN,
    INPUT_IDS,
    INPUT_LENGTHS,
    PER_TOKEN_FIELDS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
)
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.rollout.worker import Rollout, RolloutWorker
from rlconform.grpo.trainers.base import StepResult, Trainer
from rlconform.grpo.trainers.driver_step import (
    RowSummaries,
    StepRows,
    advantages_and_mask,
    driver_fields,
    score_rollout,
    select_rows,
    set_padded_width,
    step_metrics,
    validation_metrics,
)
from rlconform.grpo.trainers.legacy_policy import LegacyPolicy
from rlconform.grpo.trainers.performance import performance
from rlconform.grpo.trainers.step_groups import StepGroups


class LegacyTrainer(Trainer):
    """Trains with rows in the driver's memory, on ``PolicyWorker`` and ``RolloutWorker`` actors."""

    has_plane = False

    def __init__(self, config: MasterConfig, actors: RunActors) -> None:
        super().__init__(config, actors)
        self._policy = LegacyPolicy(actors.workers, config)

    def step(self) -> StepResult:
        """Run one step: generate rows, compute logprobs and advantages, train, refit the engine."""
        with self.timer.stage("generation"):
            groups = self.step_groups()
            generated, rows = self._generate(groups)
            groups.selected(generated)

        with self.timer.stage("prev_logprobs"):
            rows[PREV_LOGPROBS] = self._policy.get_logprobs(rows)

        if self.config.loss_fn.needs_reference_policy:
            with self.timer.stage("reference_logprobs"):
                rows[REFERENCE_POLICY_LOGPROBS] = self._policy.get_reference_policy_logprobs(rows)

        with self.timer.stage("advantages"):
            prev, engine, *reference = (rows[name] for name in driver_fields(self.config))
            targets = advantages_and_mask(generated, prev, engine, self.config, *reference)
            rows.update(targets.columns)

        with self.timer.stage("train"):
            updates = self._policy.train(rows)
        groups.trained()

        with self.timer.stage("refit"):
            self.finish_update()

        times = self.timer.take("step")
        metrics = step_metrics(generated, targets, updates) | times
        metrics |= performance(generated.meta, updates, times["time/train"])
        return StepResult(generated.meta.sample_ids, targets.columns[ADVANTAGES], metrics)

    def _generate(self, groups: StepGroups) -> tuple[StepRows, TensorDict]:
        """Collect rollouts until the step has all of its rows; return these rows."""
        collected, summaries, rollouts = None, RowSummaries(), list[Rollout]()
        for gen_batches in count(1):
            problems = self.next_problems()
            groups.dispatched(problems)
            rollout = self.actors.call_rollout_worker(RolloutWorker.collect, problems, "train")
            rollouts.append(rollout)
            summaries.update(zip(rollout.sample_ids, rollout.summaries, strict=True))
            generated = score_rollout(_meta(rollout), summaries, self.config)
            groups.generated(StepRows(generated, summaries, gen_batches))
            selection = select_rows(collected, generated, gen_batches, self.config.grpo)
            if selection.complete:
                break
            collected = selection.kept
        meta = set_padded_width(selection.kept, self.config)
        width = meta.extra_info[GLOBAL_FORWARD_PAD_SEQLEN]
        rows = gather_rows(rollouts, meta.sample_ids, width, {INPUT_IDS: self.pad_token_id})
        return StepRows(meta, summaries, gen_batches), rows

    def validate(self) -> dict[str, float]:
        """Generate answers to the validation problems; return metrics ``val/...`` and times."""
        with self.timer.stage("validation"):
            summaries = [
                summary
                for problems in self.validation_batches()
                for summary in self.actors.call_rollout_worker(
                    RolloutWorker.collect, problems, "val"
                ).summaries
            ]
        generations = self.config.grpo.val_num_generations_per_prompt
        return validation_metrics(summaries, generations) | self.timer.take()


def _meta(rollout: Rollout) -> KVBatchMeta:
    """Build a meta of the rollout's rows, as if they were in a plane."""
    lengths: list[int] = rollout.columns[INPUT_LENGTHS].tolist()
    return KVBatchMeta("memory", None, list(rollout.sample_ids), sequence_lengths=lengths)


def gather_rows(
    rollouts: Sequence[Rollout],
    sample_ids: Sequence[str],
    width: int,
    pad_values: Mapping[str, int],
) -> TensorDict:
    """Join the tensors of N rows of several rollouts; per-token columns become (N, width, ...).

    Per-token columns are padded with ``pad_values``, 0 by default; no row is longer than ``width``.
    ``KeyError`` for a row that is in no rollout.
    """
    parts = [_tensors(rollout, width, pad_values) for rollout in rollouts]
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    ids = [sample_id for rollout in rollouts for sample_id in rollout.sample_ids]
    row_of = {sample_id: row for row, sample_id in enumerate(ids)}
    order = torch.tensor([row_of[sample_id] for sample_id in sample_ids])
    columns = {name: column[order] for name, column in joined.items()}
    return TensorDict(columns, batch_size=[len(sample_ids)])


def _tensors(rollout: Rollout, width: int, pad_values: Mapping[str, int]) -> dict[str, Tensor]:
    columns = {name: leaf for name, leaf in rollout.columns.items() if isinstance(leaf, Tensor)}
    for name in PER_TOKEN_FIELDS & columns.keys():
        # A negative padding cuts; only rows that are not selected lose tokens.
        trailing = (0, 0) * (columns[name].dim() - 2)
        padding = (*trailing, 0, width - columns[name].shape[1])
        columns[name] = functional.pad(columns[name], padding, value=pad_values.get(name, 0))
    return columns

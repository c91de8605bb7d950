"""The part of a GRPO step that the driver computes, the same for every trainer.

    summaries ── score_rollout ──▶ tags: reward, baseline, std ── select_rows ──▶ the step's rows
    sequence lengths ── set_padded_width ──▶ the width that every reader pads to
    logprobs ── advantages_and_mask ──▶ advantages (N, S), sample_mask (N,)
    rows, targets, updates ── step_metrics ──▶ metrics by name

These functions need only metas, row summaries and two columns, not whole rows. Therefore they work
for rows in the driver's memory and for rows in a data plane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import (
    ADVANTAGES,
    DP_TRAIN_FIELDS,
    GLOBAL_FORWARD_PAD_SEQLEN,
    REFERENCE_POLICY_LOGPROBS,
    SAMPLE_MASK,
)
from rlconform.grpo.algorithm.advantages import (
    broadcast_to_tokens,
    compute_advantages,
    group_baseline,
    group_of,
)
from rlconform.grpo.algorithm.dynamic_sampling import STD, Selection, select_groups
from rlconform.grpo.algorithm.masking import (
    mask_logprob_error,
    mask_overlong,
    sequence_logprob_error,
)
from rlconform.grpo.algorithm.rewards import scale_rewards, shape_rewards
from rlconform.grpo.algorithm.rollout_statistics import rollout_metrics
from rlconform.grpo.config import GRPOConfig, MasterConfig
from rlconform.grpo.rollout.worker import RowSummary, token_mask
from rlconform.plane.microbatches import round_up

#: Tags that the driver sets beside ``STD``: the scaled and shaped reward, and its baseline.
REWARD = "reward"
BASELINE = "baseline"

#: Row summaries by sample id.
RowSummaries = dict[str, RowSummary]


def score_rollout(meta: KVBatchMeta, summaries: RowSummaries, config: MasterConfig) -> KVBatchMeta:
    """Add the tags ``reward``, ``baseline`` and ``std`` to the meta of a rollout's whole groups."""
    rewards = _scale_and_shape(
        torch.tensor([summaries[sample_id].reward for sample_id in meta.sample_ids]),
        torch.tensor([summaries[sample_id].response_length for sample_id in meta.sample_ids]),
        config,
    )
    groups = [group_of(sample_id) for sample_id in meta.sample_ids]
    baseline, std = group_baseline(rewards, groups, config.grpo.use_leave_one_out_baseline)
    return meta.stamp_tags({REWARD: list(rewards), BASELINE: list(baseline), STD: list(std)})


def _scale_and_shape(rewards: Tensor, response_lengths: Tensor, config: MasterConfig) -> Tensor:
    scaling, shaping = config.grpo.reward_scaling, config.grpo.reward_shaping
    if scaling.enabled:
        rewards = scale_rewards(rewards, scaling)
    if shaping.enabled:
        limit = shaping.max_response_length or config.generation.max_new_tokens
        rewards = shape_rewards(rewards, response_lengths, shaping, limit)
    return rewards


def prompts_to_generate(config: GRPOConfig) -> int:
    """Return the number of prompts of one generation batch."""
    return config.num_prompts_per_step * config.batch_multiplier


def select_rows(
    collected: KVBatchMeta | None, generated: KVBatchMeta, gen_batches: int, config: GRPOConfig
) -> Selection:
    """Select the rows to train on: all rows, or by ``select_groups`` under dynamic sampling."""
    if not config.use_dynamic_sampling:
        return Selection(generated, [], complete=True)
    return select_groups(collected, generated, gen_batches, config)


def set_padded_width(meta: KVBatchMeta, config: MasterConfig) -> KVBatchMeta:
    """Add to the meta's ``extra_info`` the width in tokens to which all readers pad their rows.

    The driver sets it once per step. If each rank padded to its own longest row, ranks would run
    collectives on tensors of different shapes and hang.
    """
    longest = max(meta.sequence_lengths or [0])
    width = round_up(longest, config.policy.make_sequence_length_divisible_by)
    return replace(meta, extra_info={**meta.extra_info, GLOBAL_FORWARD_PAD_SEQLEN: width})


class StepRows(NamedTuple):
    """The rows that a step trains on."""

    meta: KVBatchMeta  # with lengths, tags and the step's width
    summaries: RowSummaries  # of at least these rows
    gen_batches: int  # number of batches that were generated for them


class TrainTargets(NamedTuple):
    """The columns that the driver computes before training, and their statistics."""

    columns: dict[str, Tensor]  # ``advantages`` (N, S) and ``sample_mask`` (N,), float32
    metrics: dict[str, float]


def advantages_and_mask(
    generated: StepRows,
    prev_logprobs: Tensor,
    generation_logprobs: Tensor,
    config: MasterConfig,
) -> TrainTargets:
    """Compute advantages and the row mask; both logprobs are (N, S), with S the step's width."""
    meta, summaries, _ = generated
    tags = meta.tags or []
    reward, baseline, std = (
        torch.tensor([row[name] for row in tags], dtype=torch.float32)
        for name in (REWARD, BASELINE, STD)
    )
    row_summaries = [summaries[sample_id] for sample_id in meta.sample_ids]
    trained = token_mask([row.spans for row in row_summaries], prev_logprobs.shape[1])
    advantages = compute_advantages(reward, baseline, std, config.grpo.normalize_rewards)
    error = sequence_logprob_error(prev_logprobs, generation_logprobs, trained)
    mask = torch.ones(meta.size, dtype=torch.float32)
    if config.grpo.overlong_filtering:
        mask = mask_overlong(mask, torch.tensor([row.truncated for row in row_summaries]))
    if config.grpo.seq_logprob_error_threshold is not None:
        mask = mask_logprob_error(mask, error, config.grpo.seq_logprob_error_threshold)
    return TrainTargets(
        {ADVANTAGES: broadcast_to_tokens(advantages, trained), SAMPLE_MASK: mask},
        {
            "advantage_max": advantages.abs().max().item(),
            "seq_logprob_error": error.mean().item(),
            "masked_rows": float((mask == 0).sum()),
        },
    )


def train_fields(config: MasterConfig) -> list[str]:
    """Return the columns that training reads; reference logprobs only under a KL penalty."""
    if config.loss_fn.needs_reference_policy:
        return list(DP_TRAIN_FIELDS)
    return [name for name in DP_TRAIN_FIELDS if name != REFERENCE_POLICY_LOGPROBS]


def step_metrics(
    generated: StepRows, targets: TrainTargets, updates: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """Compute the metrics ``train/...`` of a step's rollout, masks and updates.

    Rewards are those of the task, before scaling. Metrics of ``PolicyModel.train`` are averaged
    over the updates.
    """
    row_summaries = [generated.summaries[sample_id] for sample_id in generated.meta.sample_ids]
    rollout = rollout_metrics(
        torch.tensor([row.reward for row in row_summaries]),
        torch.tensor([row[STD] for row in generated.meta.tags or []]),
        [row.response_length for row in row_summaries],
        torch.tensor([row.truncated for row in row_summaries]),
    )
    update = {name: sum(each[name] for each in updates) / len(updates) for name in updates[0]}
    all_metrics = {
        **rollout,
        "gen_batches": float(generated.gen_batches),
        **targets.metrics,
        **update,
    }
    return {f"train/{name}": value for name, value in all_metrics.items()}


def validation_metrics(summaries: Sequence[RowSummary]) -> dict[str, float]:
    """Compute means over the rows: ``val/reward``, ``val/response_length``, ``val/truncated``."""
    n = len(summaries)
    return {
        "val/reward": sum(row.reward for row in summaries) / n,
        "val/response_length": sum(row.response_length for row in summaries) / n,
        "val/truncated": sum(row.truncated for row in summaries) / n,
    }

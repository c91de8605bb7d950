"""The part of a GRPO step that the driver computes, the same for every trainer.

    summaries ── score_rollout ──▶ tags: reward, baseline, std ── select_rows ──▶ the step's rows
    sequence lengths ── set_padded_width ──▶ the width that every reader pads to
    logprobs (driver_fields) ── advantages_and_mask ──▶ advantages (N, S), sample_mask (N,)
    rows, targets, updates ── step_metrics ──▶ metrics by name

These functions need only metas, row summaries and columns of logprobs, not whole rows. Therefore
they work for rows in the driver's memory and for rows in a data plane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import (
    ADVANTAGES,
    DP_TRAIN_FIELDS,
    GENERATION_LOGPROBS,
    GLOBAL_FORWARD_PAD_SEQLEN,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
    ROUTED_EXPERTS,
    SAMPLE_MASK,
)
from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.algorithm.advantages import group_baseline, group_of
from rlconform.grpo.algorithm.dynamic_sampling import STD, Selection, select_groups
from rlconform.grpo.algorithm.estimators import ScoredRows, estimate_advantages
from rlconform.grpo.algorithm.kl_penalty import estimate_kl
from rlconform.grpo.algorithm.masking import (
    mask_logprob_error,
    mask_overlong,
    sequence_logprob_error,
)
from rlconform.grpo.algorithm.rewards import comparable_rows, scale_rewards, shape_rewards
from rlconform.grpo.algorithm.rollout_statistics import rollout_metrics
from rlconform.grpo.config import GRPOConfig, MasterConfig
from rlconform.grpo.failures import TooFewRewards
from rlconform.grpo.rollout.worker import RowSummary, token_mask
from rlconform.plane.microbatches import round_up

#: Tags that the driver sets beside ``STD``: the scaled and shaped reward, and its baseline.
REWARD = "reward"
BASELINE = "baseline"

#: Row summaries by sample id.
RowSummaries = dict[str, RowSummary]


def score_rollout(meta: KVBatchMeta, summaries: RowSummaries, config: MasterConfig) -> KVBatchMeta:
    """Add the tags ``reward``, ``baseline`` and ``std`` to the meta of a rollout's whole groups.

    Reward and baseline are scaled and shaped. The std is that of the rewards before shaping:
    dynamic sampling drops groups in which all answers are equally right (DAPO, arXiv 2503.14476,
    eq. 11), also if their lengths differ. A row without a reward counts in none of them; its own
    tag ``reward`` equals its baseline.
    """
    rows = [summaries[sample_id] for sample_id in meta.sample_ids]
    counted = comparable(meta, summaries)
    scaled = _scale(torch.tensor([row.reward or 0.0 for row in rows]), config)
    shaping = config.grpo.reward_shaping
    rewards = scaled
    if shaping.enabled:
        lengths = torch.tensor([row.response_length for row in rows])
        limit = shaping.max_response_length or config.generation.max_new_tokens
        rewards = shape_rewards(scaled, lengths, shaping, limit)
    groups = [group_of(sample_id) for sample_id in meta.sample_ids]
    baseline, _ = group_baseline(rewards, groups, config.grpo.leaves_one_out, counted)
    _, std = group_baseline(scaled, groups, counted=counted)
    rewards = torch.where(counted, rewards, baseline)
    return meta.stamp_tags({REWARD: list(rewards), BASELINE: list(baseline), STD: list(std)})


def comparable(meta: KVBatchMeta, summaries: RowSummaries) -> Tensor:
    """Return a mask (N,) of the meta's rows that have a reward, see ``comparable_rows``."""
    return comparable_rows(
        [group_of(sample_id) for sample_id in meta.sample_ids],
        [summaries[sample_id].reward is not None for sample_id in meta.sample_ids],
    )


def _scale(rewards: Tensor, config: MasterConfig) -> Tensor:
    scaling = config.grpo.reward_scaling
    return scale_rewards(rewards, scaling) if scaling.enabled else rewards


def prompts_to_generate(config: GRPOConfig) -> int:
    """Return the number of prompts of one generation batch."""
    return int(config.num_prompts_per_step * config.batch_multiplier)


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

    #: ``advantages`` (N, S), ``sample_mask`` (N,) and, if training reads it, ``total_reward`` (N,),
    #: the task's; all float32.
    columns: dict[str, Tensor]
    metrics: dict[str, float]


def driver_fields(config: MasterConfig) -> list[str]:
    """Return the columns that ``advantages_and_mask`` needs, in the order of its arguments."""
    fields = [PREV_LOGPROBS, GENERATION_LOGPROBS]
    return [*fields, REFERENCE_POLICY_LOGPROBS] if _has_kl_in_reward(config) else fields


def _has_kl_in_reward(config: MasterConfig) -> bool:
    return config.loss_fn.use_kl_in_reward and config.loss_fn.needs_reference_policy


def advantages_and_mask(
    generated: StepRows,
    prev_logprobs: Tensor,
    generation_logprobs: Tensor,
    config: MasterConfig,
    reference_logprobs: Tensor | None = None,
) -> TrainTargets:
    """Compute advantages and the row mask; all logprobs are (N, S), with S the step's width.

    Rows without a reward are masked. Reference logprobs are needed with
    ``loss_fn.use_kl_in_reward``, else ``ValueError``; ``TooFewRewards`` if no row is left.
    """
    meta, summaries, _ = generated
    counted = comparable(meta, summaries)
    if not bool(counted.any()):
        raise TooFewRewards(
            f"none of the {meta.size} rows to train on has a reward that can be compared: "
            f"{failure_counts(summaries.values())}"
        )
    row_summaries = [summaries[sample_id] for sample_id in meta.sample_ids]
    trained = token_mask([row.spans for row in row_summaries], prev_logprobs.shape[1])
    error = sequence_logprob_error(prev_logprobs, generation_logprobs, trained)
    mask = counted.to(torch.float32)
    if config.grpo.overlong_filtering:
        mask = mask_overlong(mask, torch.tensor([row.truncated for row in row_summaries]))
    if config.grpo.seq_logprob_error_threshold is not None:
        mask = mask_logprob_error(mask, error, config.grpo.seq_logprob_error_threshold)
    kl = None
    if _has_kl_in_reward(config):
        if reference_logprobs is None:
            raise ValueError("loss_fn.use_kl_in_reward needs reference_logprobs")
        estimate = estimate_kl(prev_logprobs, reference_logprobs, config.loss_fn)
        kl = config.loss_fn.reference_policy_kl_penalty * estimate
    rows = ScoredRows(
        torch.tensor([row[REWARD] for row in meta.tags or []], dtype=torch.float32),
        [group_of(sample_id) for sample_id in meta.sample_ids],
        trained,
        mask,
        _components(row_summaries, config),
        kl,
        counted,
    )
    advantages = estimate_advantages(rows, config.grpo)
    columns = {ADVANTAGES: advantages, SAMPLE_MASK: mask}
    return TrainTargets(
        columns,
        {
            "advantage_max": advantages.abs().max().item(),
            "seq_logprob_error": error.mean().item(),
            "masked_rows": float((mask == 0).sum()),
        },
    )


def _components(rows: Sequence[RowSummary], config: MasterConfig) -> dict[str, Tensor]:
    """Return the scaled components of the rewards by name, (N,) each; 0 where a row has none."""
    names = sorted({name for row in rows for name in row.components})
    return {
        name: _scale(torch.tensor([row.components.get(name, 0.0) for row in rows]), config)
        for name in names
    }


def train_fields(config: MasterConfig) -> list[str]:
    """Return the columns that training reads.

    Reference logprobs are among them for a KL penalty in the loss, and routes for router replay.
    """
    fields = [
        name
        for name in DP_TRAIN_FIELDS
        if name != REFERENCE_POLICY_LOGPROBS or config.loss_fn.kl_penalty_in_loss
    ]
    return [*fields, *replay_fields(config)]


def replay_fields(config: MasterConfig) -> list[str]:
    """Return the columns that every pass of the policy needs for router replay, if it is on."""
    return [ROUTED_EXPERTS] if config.policy.router_replay.enabled else []


def step_metrics(
    generated: StepRows, targets: TrainTargets, updates: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """Compute the metrics ``train/...`` of a step's rollout, masks and updates.

    Rewards are those before scaling, of rows that have one. Metrics of ``RankPolicy.train`` are
    averaged over the updates. ``rewards/failed/<cause>`` counts all rows of the step's generation.
    """
    row_summaries = [generated.summaries[sample_id] for sample_id in generated.meta.sample_ids]
    rollout = rollout_metrics(
        torch.tensor([row.reward for row in row_summaries if row.reward is not None]),
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
    failed = failure_counts(generated.summaries.values())
    return {
        **{f"train/{name}": value for name, value in all_metrics.items()},
        **{f"rewards/failed/{cause}": float(count) for cause, count in failed.items()},
    }


def failure_counts(rows: Iterable[RowSummary]) -> dict[str, int]:
    """Count the rows without a reward by each cause that there is."""
    counts = Counter(row.reward_failure for row in rows)
    return {cause.value: counts[cause] for cause in RewardFailureCause}


def validation_metrics(
    summaries: Sequence[RowSummary], generations_per_prompt: int = 1
) -> dict[str, float]:
    """Compute means over the rows: ``val/reward``, ``val/response_length``, ``val/truncated``.

    With several rows per problem, which are adjacent, ``val/pass_k`` is the share of problems with
    a reward above 0 in any row (pass@k, Chen et al. 2021, arXiv 2107.03374). Rows without a reward
    are counted in ``val/reward_failed``; they are no part of the mean, and problems without any
    reward none of the share. Without any reward at all both are left out.
    """
    n, k = len(summaries), generations_per_prompt
    rewards = [row.reward for row in summaries if row.reward is not None]
    metrics = {
        "val/response_length": sum(row.response_length for row in summaries) / n,
        "val/truncated": sum(row.truncated for row in summaries) / n,
        "val/reward_failed": float(n - len(rewards)),
    }
    if rewards:
        metrics["val/reward"] = sum(rewards) / len(rewards)
    if rewards and k > 1:
        of_problems = [
            [row.reward for row in summaries[i : i + k] if row.reward is not None]
            for i in range(0, n, k)
        ]
        passed = [max(of_problem) > 0 for of_problem in of_problems if of_problem]
        metrics["val/pass_k"] = sum(passed) / len(passed)
    return metrics

"""What one GRPO step computes on the driver, whatever carries its rows.

    carry ── scored ──▶ rewards, baseline, std as tags ── chosen ──▶ the step's rows, and the others
    rows' lengths ── with_width ──▶ the one width that every reader pads to
    logprobs ── advantages_and_mask ──▶ advantages (N, S), sample_mask (N,)
    all of it ── step_metrics ──▶ one number by name

All of it reads metas, carries and two columns; none of it knows where the rows are.
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
    advantages_of,
    group_baseline,
    group_of,
    over_tokens,
)
from rlconform.grpo.algorithm.dynamic_sampling import (
    STD,
    DynamicSampling,
    Selection,
    select_groups,
)
from rlconform.grpo.algorithm.masking import (
    mask_logprob_error,
    mask_overlong,
    sequence_logprob_error,
)
from rlconform.grpo.algorithm.metrics import rollout_statistics
from rlconform.grpo.algorithm.rewards import (
    OverlongPenalty,
    RewardScaling,
    scale_rewards,
    shape_rewards,
)
from rlconform.grpo.config import GRPOConfig, MasterConfig
from rlconform.grpo.rollout.worker import RowSummary, token_mask
from rlconform.plane.microbatches import round_up

#: Tags that the driver stamps beside ``STD``: the reward as compared, and what it is held against.
REWARD = "reward"
BASELINE = "baseline"

#: Carries by sample id.
Carries = dict[str, RowSummary]


def scored(meta: KVBatchMeta, carry: Carries, config: MasterConfig) -> KVBatchMeta:
    """A rollout's rows with tags ``reward``, ``baseline`` and ``std``.

    Args:
        meta: Whole groups.
        carry: Of at least these rows.
        config: How rewards are scaled and shaped, and which baseline is taken.
    """
    rewards = _shaped(
        torch.tensor([carry[sample_id].reward for sample_id in meta.sample_ids]),
        torch.tensor([carry[sample_id].response_length for sample_id in meta.sample_ids]),
        config,
    )
    groups = [group_of(sample_id) for sample_id in meta.sample_ids]
    baseline, std = group_baseline(rewards, groups, config.grpo.use_leave_one_out_baseline)
    return meta.stamp_tags({REWARD: list(rewards), BASELINE: list(baseline), STD: list(std)})


def _shaped(rewards: Tensor, response_lengths: Tensor, config: MasterConfig) -> Tensor:
    scaling, shaping = config.grpo.reward_scaling, config.grpo.reward_shaping
    if scaling.enabled:
        rewards = scale_rewards(
            rewards,
            RewardScaling(
                source_min=scaling.source_min,
                source_max=scaling.source_max,
                target_min=scaling.target_min,
                target_max=scaling.target_max,
            ),
        )
    if shaping.enabled:
        limit = shaping.max_response_length or config.generation.max_new_tokens
        penalty = OverlongPenalty(
            limit, shaping.overlong_buffer_length, shaping.overlong_buffer_penalty
        )
        rewards = shape_rewards(rewards, response_lengths, penalty)
    return rewards


def prompts_to_generate(config: GRPOConfig) -> int:
    """Prompts of one generation batch."""
    return config.num_prompts_per_step * config.batch_multiplier


def chosen(
    collected: KVBatchMeta | None, generated: KVBatchMeta, gen_batches: int, config: GRPOConfig
) -> Selection:
    """The step's rows so far, and those to drop: all and none without dynamic sampling.

    Args:
        collected: ``kept`` of the step's selection before, None at its first batch.
        generated: A rollout's rows from ``scored``.
        gen_batches: Batches generated for this step, this one included.
        config: Whether groups are sampled dynamically, and how.

    Raises:
        TooManyGenBatches: No more batches may be generated, and groups are missing.
    """
    if not config.use_dynamic_sampling:
        return Selection(generated, [], complete=True)
    return select_groups(
        collected,
        generated,
        gen_batches,
        DynamicSampling(
            num_prompts_per_step=config.num_prompts_per_step,
            num_generations_per_prompt=config.num_generations_per_prompt,
            max_gen_batches=config.dynamic_sampling_max_gen_batches,
            std_tolerance=config.dynamic_sampling_std_tolerance,
        ),
    )


def with_width(meta: KVBatchMeta, config: MasterConfig) -> KVBatchMeta:
    """The rows with the width in tokens that every reader of the step pads to.

    Minted here once: ranks that each took their own longest row would wait for each other.
    """
    longest = max(meta.sequence_lengths or [0])
    width = round_up(longest, config.policy.make_sequence_length_divisible_by)
    return replace(meta, extra_info={**meta.extra_info, GLOBAL_FORWARD_PAD_SEQLEN: width})


class Generated(NamedTuple):
    """The rows that a step trains on, in names.

    Attributes:
        meta: Rows with lengths, tags and the step's width.
        carry: Of at least these rows.
        gen_batches: Batches generated for them.
    """

    meta: KVBatchMeta
    carry: Carries
    gen_batches: int


class TrainTargets(NamedTuple):
    """What the driver adds to the rows before training.

    Attributes:
        columns: ``advantages`` (N, S) float32 and ``sample_mask`` (N,) float32.
        metrics: What the masks were made from.
    """

    columns: dict[str, Tensor]
    metrics: dict[str, float]


def advantages_and_mask(
    generated: Generated,
    prev_logprobs: Tensor,
    generation_logprobs: Tensor,
    config: MasterConfig,
) -> TrainTargets:
    """The advantage of each token that is trained, and which rows count.

    Args:
        generated: The step's N rows.
        prev_logprobs: (N, S), S the step's width.
        generation_logprobs: (N, S).
        config: How advantages are normalised, which rows are masked.
    """
    meta, carry, _ = generated
    tags = meta.tags or []
    reward, baseline, std = (
        torch.tensor([row[name] for row in tags], dtype=torch.float32)
        for name in (REWARD, BASELINE, STD)
    )
    of_rows = [carry[sample_id] for sample_id in meta.sample_ids]
    trained = token_mask([row.spans for row in of_rows], prev_logprobs.shape[1])
    advantages = advantages_of(reward, baseline, std, config.grpo.normalize_rewards)
    error = sequence_logprob_error(prev_logprobs, generation_logprobs, trained)
    mask = torch.ones(meta.size, dtype=torch.float32)
    if config.grpo.overlong_filtering:
        mask = mask_overlong(mask, torch.tensor([row.truncated for row in of_rows]))
    if config.grpo.seq_logprob_error_threshold is not None:
        mask = mask_logprob_error(mask, error, config.grpo.seq_logprob_error_threshold)
    return TrainTargets(
        {ADVANTAGES: over_tokens(advantages, trained), SAMPLE_MASK: mask},
        {
            "advantage_max": advantages.abs().max().item(),
            "seq_logprob_error": error.mean().item(),
            "masked_rows": float((mask == 0).sum()),
        },
    )


def train_fields(config: MasterConfig) -> list[str]:
    """The columns that training reads: without a KL penalty there is no reference's."""
    if config.loss_fn.needs_reference_policy:
        return list(DP_TRAIN_FIELDS)
    return [name for name in DP_TRAIN_FIELDS if name != REFERENCE_POLICY_LOGPROBS]


def step_metrics(
    generated: Generated, targets: TrainTargets, updates: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """Numbers of a step, ``train/...``: of its rollout, its masks and its updates.

    Args:
        generated: The rows that are trained on; rewards are the task's own, before any scaling.
        targets: From ``advantages_and_mask``.
        updates: From ``Policy.train``, one for each global batch; the mean over them is taken.
    """
    of_rows = [generated.carry[sample_id] for sample_id in generated.meta.sample_ids]
    rollout = rollout_statistics(
        torch.tensor([row.reward for row in of_rows]),
        torch.tensor([row[STD] for row in generated.meta.tags or []]),
        [row.response_length for row in of_rows],
        torch.tensor([row.truncated for row in of_rows]),
    )
    update = {name: sum(each[name] for each in updates) / len(updates) for name in updates[0]}
    every = {**rollout, "gen_batches": float(generated.gen_batches), **targets.metrics, **update}
    return {f"train/{name}": value for name, value in every.items()}


def validation_metrics(carry: Sequence[RowSummary]) -> dict[str, float]:
    """``val/reward``, ``val/response_length`` and ``val/truncated``, means over the rows."""
    n = len(carry)
    return {
        "val/reward": sum(row.reward for row in carry) / n,
        "val/response_length": sum(row.response_length for row in carry) / n,
        "val/truncated": sum(row.truncated for row in carry) / n,
    }

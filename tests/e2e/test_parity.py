"""PAR-03: a training run through each plane equals the run in memory bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from rlconform.contract import DataPlaneClient
from rlconform.grpo.compare_runs import differences
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.tasks import build_task
from rlconform.grpo.trainers.driver_step import prompts_to_generate
from rlconform.plane import mint_sample_ids

pytestmark = pytest.mark.timeout(300)

STEPS = 10


@pytest.mark.parametrize("packing", ["none", "sequence_packing", "dynamic_batching"])
@pytest.mark.parametrize("model", ["tiny_llama_copy", "tiny_moe_copy"])
def test_a_run_through_the_plane_is_the_run_in_memory(
    runs: Any,
    small: Callable[..., MasterConfig],
    owner: DataPlaneClient,
    attach: Attach,
    model: str,
    packing: str,
) -> None:
    config = small(model, f"grpo.max_num_steps={STEPS}", f"policy.packing.mode={packing}")
    in_memory = runs.legacy(config)
    through_plane = runs.plane(config, owner, attach)
    assert differences(in_memory, through_plane) == []
    # Runs that learn nothing would be equal too.
    assert len(through_plane.reports) == STEPS
    assert sum(norm > 0 for norm in through_plane.series("train/grad_norm")) > STEPS / 2
    assert all(map(math.isfinite, through_plane.series("train/loss")))
    for report in through_plane.reports:
        assert report.metrics["plane/bytes_read"] > report.metrics["plane/bytes_written"] > 0


OTHER_ALGORITHMS = {
    "REINFORCE++ with the KL in the reward": [
        "grpo.adv_estimator.name=reinforce_plus_plus",
        "loss_fn.use_kl_in_reward=true",
        "loss_fn.disable_ppo_ratio=true",
        "grpo.val_at_end=true",
        "grpo.max_val_samples=5",
        "grpo.val_batch_size=2",
        "grpo.val_num_generations_per_prompt=2",
        "generation.val_greedy=false",
    ],
    "GDPO and GSPO": [
        "grpo.adv_estimator={name: gdpo, reward_weights: [1.0, 0.5]}",
        "grpo.advantage_clip_high=1.5",
        "loss_fn.sequence_level_importance_ratios=true",
        "loss_fn.token_level_loss=false",
        "loss_fn.reference_policy_kl_gradient=unbiased",
        "loss_fn.use_on_policy_kl_approximation=true",
    ],
    "CISPO with icepop": [
        "loss_fn.use_cispo=true",
        "loss_fn.truncated_importance_sampling_type=icepop",
        "loss_fn.truncated_importance_sampling_ratio_min=0.5",
    ],
}


@pytest.mark.parametrize("name", OTHER_ALGORITHMS)
def test_other_algorithms_agree(
    runs: Any,
    small: Callable[..., MasterConfig],
    owner: DataPlaneClient,
    attach: Attach,
    name: str,
) -> None:
    config = small("tiny_llama_copy", "grpo.max_num_steps=3", *OTHER_ALGORITHMS[name])
    in_memory = runs.legacy(config)
    through_plane = runs.plane(config, owner, attach)
    assert differences(in_memory, through_plane) == []
    assert len(through_plane.reports) == 3
    assert max(through_plane.series("train/grad_norm")) > 0
    assert all(map(math.isfinite, through_plane.series("train/loss")))
    assert ("val/pass_k" in through_plane.reports[-1].metrics) == config.grpo.val_at_end


def test_turns_and_shaped_rewards_agree(
    runs: Any,
    small: Callable[..., MasterConfig],
    owner: DataPlaneClient,
    attach: Attach,
) -> None:
    config = small(
        "tiny_llama_copy",
        "grpo.max_num_steps=3",
        "grpo.max_rollout_turns=3",
        "grpo.reward_shaping={enabled: true, max_response_length: 18, overlong_buffer_length: 17}",
        "grpo.seq_logprob_error_threshold=1.1",
        "data.task=guess",
        "policy.max_total_sequence_length=40",
    )
    in_memory = runs.legacy(config)
    through_plane = runs.plane(config, owner, attach)
    assert differences(in_memory, through_plane) == []
    assert all(norm > 0 for norm in through_plane.series("train/grad_norm"))
    # longer than one turn, so rows had several turns
    longest = max(through_plane.series("train/response_length_max"))
    assert longest > config.generation.max_new_tokens


def test_dynamic_sampling_drops_the_same_rows_and_leaves_none(
    runs: Any,
    small: Callable[..., MasterConfig],
    owner: DataPlaneClient,
    attach: Attach,
) -> None:
    config = small(
        "tiny_llama_copy",
        "grpo.max_num_steps=3",
        "grpo.use_dynamic_sampling=true",
        "grpo.batch_multiplier=2",
        "grpo.overlong_filtering=true",
        "grpo.use_leave_one_out_baseline=true",
        "grpo.val_period=2",
        "grpo.max_val_samples=3",
    )
    in_memory = runs.legacy(config)
    through_plane = runs.plane(config, owner, attach)
    assert differences(in_memory, through_plane) == []
    assert "val/reward" in through_plane.reports[1].metrics
    assert set(through_plane.series("train/zero_std")) == {0.0}
    assert all(norm > 0 for norm in through_plane.series("train/grad_norm"))

    batches = int(sum(through_plane.series("train/gen_batches")))
    task = build_task(config.data, config.grpo.seed, "train")
    prompts = [task.problem(i).uid for i in range(batches * prompts_to_generate(config.grpo))]
    generated = mint_sample_ids(prompts, config.grpo.num_generations_per_prompt)
    trained = [row for report in through_plane.reports for row in report.result.sample_ids]
    assert set(trained) < set(generated)
    for sample_id in generated:
        with pytest.raises(LookupError):
            owner.get_samples(
                sample_ids=[sample_id], partition_id="train", select_fields=["input_ids"]
            )

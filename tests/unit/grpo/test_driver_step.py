"""The driver's part of a step, the rows in memory, stage times, and the comparison of runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tensordict import TensorDict

from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import (
    GLOBAL_FORWARD_PAD_SEQLEN,
    INPUT_IDS,
    INPUT_LENGTHS,
    REFERENCE_POLICY_LOGPROBS,
)
from rlconform.grpo.algorithm.dynamic_sampling import STD, TooManyGenBatches
from rlconform.grpo.compare_runs import TrainingRecord, differences
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.plane_traffic import Traffic, TrafficMeter
from rlconform.grpo.rollout.worker import Rollout, RowSummary, token_mask
from rlconform.grpo.trainers.base import StageTimer, StepResult
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
    train_fields,
    validation_metrics,
)
from rlconform.grpo.trainers.legacy import gather_rows
from rlconform.grpo.training_loop import StepReport
from rlconform.plane import MetricEvent

IDS = ["a_g0", "a_g1", "b_g0", "b_g1"]
SPANS = [((2, 4),), ((2, 3), (5, 7)), ((1, 5),), ((1, 2),)]
REWARDS = [1.0, 0.0, 0.5, 0.5]


def config(*overrides: str) -> MasterConfig:
    return load_config(
        "tiny_llama_copy",
        ["grpo.num_prompts_per_step=2", "grpo.num_generations_per_prompt=2", *overrides],
    )


def summaries() -> RowSummaries:
    return {
        sample_id: RowSummary(reward, spans, sample_id == "b_g0", versions=((3, 3),) * len(spans))
        for sample_id, reward, spans in zip(IDS, REWARDS, SPANS, strict=True)
    }


def meta() -> KVBatchMeta:
    return KVBatchMeta("train", None, IDS, sequence_lengths=[4, 7, 5, 2])


def generated(conf: MasterConfig) -> StepRows:
    return StepRows(
        set_padded_width(score_rollout(meta(), summaries(), conf), conf), summaries(), 1
    )


def tags(of: KVBatchMeta, name: str) -> list[float]:
    return [row[name] for row in of.tags or []]


def test_rows_are_scored_against_their_own_group() -> None:
    got = score_rollout(meta(), summaries(), config())
    assert tags(got, REWARD) == REWARDS
    assert tags(got, BASELINE) == [0.5, 0.5, 0.5, 0.5]
    assert tags(got, STD) == pytest.approx([0.5**0.5, 0.5**0.5, 0, 0])
    assert {type(value) for row in got.tags or [] for value in row.values()} == {float}
    other = score_rollout(meta(), summaries(), config("grpo.use_leave_one_out_baseline=true"))
    assert tags(other, BASELINE) == [0.0, 1.0, 0.5, 0.5]


def test_rewards_are_scaled_first_and_pay_for_length_after() -> None:
    got = score_rollout(
        meta(),
        summaries(),
        config(
            "grpo.reward_scaling={enabled: true, target_min: -1.0, target_max: 1.0}",
            "grpo.reward_shaping={enabled: true, max_response_length: 4, "
            "overlong_buffer_length: 2, overlong_buffer_penalty: 1.0}",
        ),
    )
    assert tags(got, REWARD) == [1.0, -1.5, -1.0, 0.0]  # of 2, 3, 4 and 1 tokens


def test_dynamic_sampling_drops_equal_answers_of_unequal_lengths() -> None:
    conf = config(
        "grpo.use_dynamic_sampling=true",
        "grpo.reward_shaping={enabled: true, max_response_length: 4, "
        "overlong_buffer_length: 3, overlong_buffer_penalty: 1.0}",
    )
    rows = score_rollout(meta(), summaries(), conf)
    assert tags(rows, REWARD)[2:] == pytest.approx([-0.5, 0.5]), "the shaped rewards differ"
    assert tags(rows, STD)[2:] == [0, 0]
    assert select_rows(None, rows, 1, conf.grpo).cleared == ["b_g0", "b_g1"]


def test_a_generation_batch_may_be_one_and_a_half_steps() -> None:
    conf = config("grpo.use_dynamic_sampling=true", "grpo.batch_multiplier=1.5")
    assert prompts_to_generate(conf.grpo) == 3


def test_all_rows_are_trained_on_without_dynamic_sampling() -> None:
    rows = score_rollout(meta(), summaries(), config())
    selection = select_rows(None, rows, 1, config().grpo)
    assert (selection.kept, selection.cleared, selection.complete) == (rows, [], True)


def test_dynamic_sampling_takes_its_limits_from_the_configuration() -> None:
    conf = config(
        "grpo.use_dynamic_sampling=true",
        "grpo.dynamic_sampling_max_gen_batches=2",
        "grpo.dynamic_sampling_std_tolerance=0.1",
    )
    first = select_rows(None, score_rollout(meta(), summaries(), conf), 1, conf.grpo)
    assert first.kept.sample_ids == ["a_g0", "a_g1"]
    assert first.cleared == ["b_g0", "b_g1"]
    assert not first.complete
    with pytest.raises(TooManyGenBatches):
        select_rows(None, score_rollout(meta(), summaries(), conf), 2, conf.grpo)


def test_the_width_is_the_longest_row_rounded_up() -> None:
    conf = config("policy.make_sequence_length_divisible_by=4")
    got = set_padded_width(replace(meta(), extra_info={"kept": 1}), conf)
    assert got.extra_info == {"kept": 1, GLOBAL_FORWARD_PAD_SEQLEN: 8}


def test_a_mask_is_rebuilt_from_spans() -> None:
    assert token_mask(SPANS, 7).tolist() == [
        [0, 0, 1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0, 1, 1],
        [0, 1, 1, 1, 1, 0, 0],
        [0, 1, 0, 0, 0, 0, 0],
    ]


def test_advantages_stand_on_the_tokens_that_are_trained() -> None:
    conf = config("grpo.normalize_rewards=false")
    logprobs = torch.full((4, 7), -1.0)
    targets = advantages_and_mask(generated(conf), logprobs, logprobs, conf)
    mask = token_mask(SPANS, 7)
    expected = [0.5 * mask[0], -0.5 * mask[1], 0 * mask[2], 0 * mask[3]]
    assert torch.equal(targets.columns["advantages"], torch.stack(expected))
    assert targets.columns["sample_mask"].tolist() == [1, 1, 1, 1]
    assert targets.metrics["seq_logprob_error"] == 1.0


def test_rows_are_masked_for_their_length_and_for_their_logprobs() -> None:
    conf = config("grpo.overlong_filtering=true", "grpo.seq_logprob_error_threshold=1.5")
    by_engine = torch.full((4, 7), -1.0)
    by_trainer = by_engine.clone()
    by_trainer[0, 2:4] = -2.0  # trained tokens: a factor of e
    by_trainer[1, 0:2] = -9.0  # prompt tokens
    targets = advantages_and_mask(generated(conf), by_trainer, by_engine, conf)
    assert targets.columns["sample_mask"].tolist() == [0, 1, 0, 1]
    assert targets.metrics["masked_rows"] == 2


def test_training_reads_the_reference_only_for_a_penalty() -> None:
    with_penalty = train_fields(config("loss_fn.reference_policy_kl_penalty=0.1"))
    without = train_fields(config("loss_fn.reference_policy_kl_penalty=0.0"))
    assert [name for name in with_penalty if name not in without] == [REFERENCE_POLICY_LOGPROBS]


def test_the_kl_is_a_cost_in_the_rewards_and_not_in_the_loss() -> None:
    conf = config(
        "grpo.adv_estimator.name=reinforce_plus_plus",
        "loss_fn.use_kl_in_reward=true",
        "loss_fn.reference_policy_kl_penalty=0.1",
        "loss_fn.reference_policy_kl_type=k1",
    )
    logprobs, reference = torch.full((4, 7), -1.0), torch.full((4, 7), -2.0)
    reference[:, 0] = torch.nan  # no token of the policy
    assert driver_fields(conf) == [
        "prev_logprobs",
        "generation_logprobs",
        REFERENCE_POLICY_LOGPROBS,
    ]
    assert REFERENCE_POLICY_LOGPROBS not in train_fields(conf)
    with pytest.raises(ValueError, match="reference_logprobs"):
        advantages_and_mask(generated(conf), logprobs, logprobs, conf)
    targets = advantages_and_mask(generated(conf), logprobs, logprobs, conf, reference)
    mask = token_mask(SPANS, 7).bool()
    later = mask.int().flip(1).cumsum(1).flip(1)
    raw = torch.tensor([0.5, -0.5, 0, 0])[:, None] - 0.1 * later
    expected = (raw - raw[mask].mean()) / raw[mask].std(correction=0)
    torch.testing.assert_close(targets.columns["advantages"], torch.where(mask, expected, 0))


def test_components_of_rewards_are_scaled_and_compared() -> None:
    conf = config(
        "grpo.adv_estimator={name: gdpo, normalize_rewards: false}",
        "grpo.use_leave_one_out_baseline=false",
        "grpo.reward_scaling={enabled: true, target_max: 10.0}",
    )
    rows = summaries()
    for row, (a, b) in enumerate([(1.0, 0.0), (0.0, 0.0), (0.5, 1.0), (0.5, 0.0)]):
        rows[IDS[row]] = replace(rows[IDS[row]], components={"a": a, "b": b})
    made = StepRows(set_padded_width(score_rollout(meta(), rows, conf), conf), rows, 1)
    logprobs = torch.zeros((4, 7))
    targets = advantages_and_mask(made, logprobs, logprobs, conf)
    total = torch.tensor([5.0, -5.0, 5.0, -5.0])
    of_row = (targets.columns["advantages"] * token_mask(SPANS, 7)).abs().amax(1) * total.sign()
    torch.testing.assert_close(of_row, total / total.std())


def test_metrics_of_a_step_are_the_tasks_rewards_and_the_mean_update() -> None:
    conf = config("grpo.reward_scaling={enabled: true, target_max: 10.0}")
    logprobs = torch.zeros((4, 7))
    made = generated(conf)
    targets = advantages_and_mask(made, logprobs, logprobs, conf)
    got = step_metrics(made, targets, [{"loss": 1.0, "lr": 0.1}, {"loss": 2.0, "lr": 0.1}])
    assert got["train/loss"] == 1.5
    assert got["train/lr"] == 0.1
    assert got["train/reward"] == 0.5
    assert got["train/zero_std"] == 0.5
    assert got["train/truncated"] == 0.25
    assert got["train/gen_batches"] == 1.0


def test_validation_metrics_are_means_over_rows() -> None:
    got = validation_metrics(list(summaries().values()))
    assert got == {
        "val/reward": 0.5,
        "val/reward_failed": 0.0,
        "val/response_length": 2.5,
        "val/truncated": 0.25,
    }
    several = validation_metrics(list(summaries().values()), generations_per_prompt=2)
    assert several == got | {"val/pass_k": 1.0}
    rows = [replace(row, reward=0.0) for row in summaries().values()]
    assert validation_metrics([*rows[:3], summaries()["b_g1"]], 2)["val/pass_k"] == 0.5


# -- rows in memory ------------------------------------------------------------------------------


def rollout(ids: list[str], rows: list[list[int]]) -> Rollout:
    width = max(map(len, rows))
    padded = torch.tensor([row + [9] * (width - len(row)) for row in rows])
    columns = {INPUT_IDS: padded, INPUT_LENGTHS: torch.tensor([len(row) for row in rows])}
    return Rollout(ids, TensorDict(columns, batch_size=[len(ids)]), [])


def test_rows_of_several_rollouts_become_one_batch_of_one_width() -> None:
    rollouts = [rollout(["a", "b"], [[1, 2, 3, 4], [5]]), rollout(["c", "d"], [[6, 7], [8]])]
    got = gather_rows(rollouts, ["d", "b", "c"], width=3, pad_values={INPUT_IDS: 9})
    assert got[INPUT_IDS].tolist() == [[8, 9, 9], [5, 9, 9], [6, 7, 9]]
    assert got[INPUT_LENGTHS].tolist() == [1, 1, 2]
    with pytest.raises(KeyError):
        gather_rows(rollouts, ["e"], width=3, pad_values={})


# -- traffic and stage times ---------------------------------------------------------------------


def test_traffic_of_ranks_adds_up_but_for_the_seconds() -> None:
    meter = TrafficMeter()
    meter.on_operation(MetricEvent("put_samples", "train", 2, 100, 30.0, "ok"))
    meter.on_operation(MetricEvent("get_samples", "train", 2, 40, 20.0, "ok"))
    meter.on_operation(MetricEvent("clear_samples", "train", 2, 7, 10.0, "ok"))
    taken = meter.take()
    assert (taken.calls, taken.bytes_written, taken.bytes_read) == (3, 100, 40)
    assert taken.seconds == pytest.approx(0.06)
    assert meter.take() == Traffic()
    ranks = Traffic.of_ranks([taken, Traffic(1, 1, 1, 0.5)])
    assert ranks == Traffic(4, 101, 41, 0.5)


def test_a_stage_that_fails_is_timed_too() -> None:
    watch = StageTimer()
    with watch.stage("a"):
        pass
    with pytest.raises(ZeroDivisionError), watch.stage("b"):
        _ = 1 / 0
    taken = watch.take("step")
    assert list(taken) == ["time/a", "time/b", "time/step"]
    assert taken["time/step"] == taken["time/a"] + taken["time/b"]
    assert watch.take() == {}


# -- comparison of two runs ----------------------------------------------------------------------


def run(
    loss: float = 0.5, advantage: float = 1.0, weight: float = 2.0, name: str = "w"
) -> TrainingRecord:
    result = StepResult(["a_g0"], torch.tensor([[advantage]]), {})
    metrics = {"train/loss": loss, "train/kl": float("nan"), "time/step": loss}
    return TrainingRecord([StepReport(1, metrics, result)], {name: torch.tensor([weight])})


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (run(), []),
        (run(loss=0.5 + 2**-52), ["step 1: train/loss is 0.5 and 0.5000000000000002"]),
        (run(advantage=1 + 2**-23), ["step 1: advantages differ"]),
        (run(weight=2 + 2**-22), ["last weights w differ"]),
        (run(name="v"), ["only one run has weights v", "only one run has weights w"]),
        (TrainingRecord([], run().weights), ["the runs have no step in common"]),
    ],
)
def test_one_bit_is_a_difference(other: TrainingRecord, found: list[str]) -> None:
    assert differences(run(), other) == found

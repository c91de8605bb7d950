"""Rows without a reward change nothing for the others: baselines, advantages, masks and metrics."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import ADVANTAGES, SAMPLE_MASK
from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.algorithm.advantages import group_baseline
from rlconform.grpo.algorithm.estimators import ScoredRows, estimate_advantages
from rlconform.grpo.algorithm.rewards import comparable_rows
from rlconform.grpo.config import GRPOConfig, MasterConfig, load_config
from rlconform.grpo.failures import TooFewRewards
from rlconform.grpo.rollout.worker import RowSummary
from rlconform.grpo.trainers.driver_step import (
    BASELINE,
    REWARD,
    StepRows,
    advantages_and_mask,
    failure_counts,
    score_rollout,
    select_rows,
    set_padded_width,
    step_metrics,
    validation_metrics,
)

WIDTH = 3
REWARDS = st.sampled_from([-1.0, 0.0, 0.1, 0.3, 1.0, 7.0])


@st.composite
def groups_of_rows(draw: st.DrawFn) -> tuple[list[str], list[float], list[bool]]:
    """Groups of 2 to 4 rows in any order, each row with a reward or not."""
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=4))
    names = draw(st.permutations([f"p{n}" for n, size in enumerate(sizes) for _ in range(size)]))
    rewards = draw(st.lists(REWARDS, min_size=len(names), max_size=len(names)))
    rewarded = draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    return names, rewards, rewarded


def test_a_group_with_one_reward_has_nothing_to_compare() -> None:
    names = ["a", "a", "b", "b", "b", "c"]
    rewarded = [True, False, True, True, False, True]
    assert comparable_rows(names, rewarded).tolist() == [False, False, True, True, False, True]


@given(groups_of_rows(), st.booleans())
def test_a_baseline_is_that_of_the_counted_rows_alone(
    rows: tuple[list[str], list[float], list[bool]], leave_one_out: bool
) -> None:
    names, rewards, rewarded = rows
    counted = torch.tensor(rewarded)
    kept = [row for row, has in enumerate(rewarded) if has]
    values = torch.where(counted, torch.tensor(rewards), torch.nan)  # nobody may look at them
    baseline, std = group_baseline(values, names, leave_one_out, counted)
    alone = group_baseline(torch.tensor(rewards)[kept], [names[row] for row in kept], leave_one_out)
    assert torch.equal(baseline[kept], alone[0])
    assert torch.equal(std[kept], alone[1])
    assert bool(baseline.isfinite().all())
    for row in range(len(names)):
        of_group = [std[other] for other in range(len(names)) if names[other] == names[row]]
        assert all(one == std[row] for one in of_group)


def test_counted_is_a_mask_of_the_rows() -> None:
    with pytest.raises(ValueError, match=r"counted must be \(2,\) bool"):
        group_baseline(torch.ones(2), ["a", "a"], counted=torch.ones(2))


def estimator(name: str, **options: Any) -> GRPOConfig:
    conf = load_config("tiny_llama_copy", [f"grpo.adv_estimator.name={name}"]).grpo
    return conf.model_copy(update=options)


@pytest.mark.parametrize("name", ["grpo", "gdpo", "reinforce_plus_plus"])
@pytest.mark.parametrize("leave_one_out", [False, True])
@given(rows=groups_of_rows(), data=st.data())
def test_every_estimator_leaves_rows_without_a_reward_out(
    name: str,
    leave_one_out: bool,
    rows: tuple[list[str], list[float], list[bool]],
    data: st.DataObject,
) -> None:
    """The others get the advantages of a step that has no other rows."""
    names, rewards, rewarded = rows
    counted = comparable_rows(names, rewarded)
    kept = counted.nonzero().flatten().tolist()
    if not kept:
        return
    low = data.draw(st.sampled_from([None, 0.5]))
    conf = estimator(name, use_leave_one_out_baseline=leave_one_out, advantage_clip_low=low)
    mask = torch.ones(len(names), WIDTH, dtype=torch.int32)
    parts = {
        key: torch.tensor(data.draw(st.lists(REWARDS, min_size=len(names), max_size=len(names))))
        for key in ("a", "b")
    }

    def advantages(of: list[int], compared: torch.Tensor | None) -> torch.Tensor:
        return estimate_advantages(
            ScoredRows(
                torch.tensor(rewards)[of],
                [names[row] for row in of],
                mask[of],
                torch.ones(len(of)) if compared is None else compared.float(),
                {key: part[of] for key, part in parts.items()},
                comparable=compared,
            ),
            conf,
        )

    whole = advantages(list(range(len(names))), counted)
    torch.testing.assert_close(whole[kept], advantages(kept, None), rtol=1e-5, atol=1e-6)
    assert bool((whole[~counted] == 0).all())


# -- the driver's step ---------------------------------------------------------------------------

FAILED = RewardFailureCause.TIMEOUT


def config(*overrides: str) -> MasterConfig:
    return load_config(
        "tiny_llama_copy",
        ["grpo.num_prompts_per_step=2", "grpo.num_generations_per_prompt=3", *overrides],
    )


def step_rows(*rewards: float | None, conf: MasterConfig | None = None) -> StepRows:
    """Two groups of three rows with these rewards."""
    ids = [f"{group}_g{row}" for group in "ab" for row in range(3)]
    summaries = {
        sample_id: RowSummary(
            reward, ((1, 3),), False, ((0, 0),),
            reward_failure=FAILED if reward is None else None,
        )
        for sample_id, reward in zip(ids, rewards, strict=True)
    }  # fmt: skip
    meta = KVBatchMeta("train", None, ids, sequence_lengths=[WIDTH] * 6)
    conf = conf or config()
    return StepRows(set_padded_width(score_rollout(meta, summaries, conf), conf), summaries, 1)


def test_the_reward_of_a_row_without_one_is_its_baseline() -> None:
    rows = step_rows(1.0, None, 0.0, None, 0.5, 0.5)
    tags = rows.meta.tags or []
    assert [row[BASELINE] for row in tags] == [0.5] * 6
    assert [row[REWARD] for row in tags] == [1.0, 0.5, 0.0, 0.5, 0.5, 0.5]


def test_rows_without_company_are_masked() -> None:
    rows = step_rows(1.0, None, 0.0, None, 0.5, None)
    zeros = torch.zeros(6, WIDTH)
    targets = advantages_and_mask(rows, zeros, zeros, config())
    assert targets.columns[SAMPLE_MASK].tolist() == [1, 0, 1, 0, 0, 0]
    assert targets.metrics["masked_rows"] == 4
    moved = targets.columns[ADVANTAGES].abs().sum(dim=1) > 0
    assert moved.tolist() == [True, False, True, False, False, False]


def test_a_step_without_rewards_is_an_error() -> None:
    zeros = torch.zeros(6, WIDTH)
    rows = step_rows(1.0, None, None, None, None, None)
    with pytest.raises(TooFewRewards, match="none of the 6 rows to train on has a reward"):
        advantages_and_mask(rows, zeros, zeros, config())


def test_dynamic_sampling_drops_a_group_with_one_reward() -> None:
    conf = config("grpo.use_dynamic_sampling=true")
    rows = step_rows(1.0, None, 0.0, None, 0.5, None, conf=conf)
    assert select_rows(None, rows.meta, 1, conf.grpo).cleared == ["b_g0", "b_g1", "b_g2"]


def test_metrics_count_failures_and_average_the_others() -> None:
    rows = step_rows(1.0, None, 0.0, None, 0.5, 0.5)
    zeros = torch.zeros(6, WIDTH)
    targets = advantages_and_mask(rows, zeros, zeros, config())
    metrics = step_metrics(rows, targets, [{"loss": 1.0}])
    assert metrics["train/reward"] == 0.5
    assert metrics["rewards/failed/timeout"] == 2
    assert metrics["rewards/failed/raised"] == 0
    counts = failure_counts(rows.summaries.values())
    assert counts.keys() == {cause.value for cause in RewardFailureCause}


def test_a_validation_never_averages_a_failure_as_0() -> None:
    rows = list(step_rows(1.0, None, None, None, 1.0, 0.0).summaries.values())
    got = validation_metrics(rows)
    assert got["val/reward"] == pytest.approx(2 / 3)
    assert got["val/reward_failed"] == 3
    several = validation_metrics(rows, 3)
    assert several["val/pass_k"] == 1.0
    nothing = list(step_rows(*[None] * 6).summaries.values())
    assert validation_metrics(nothing, 3).keys() == {
        "val/reward_failed", "val/response_length", "val/truncated",
    }  # fmt: skip
    half = [*rows[1:3], *rows[5:6], *nothing[:3]]
    assert validation_metrics(half, 3)["val/pass_k"] == 0.0

"""Scaling and shaping of rewards are compared with loops over Python floats."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.grpo.algorithm.rewards import overlong_penalty, scale_rewards, shape_rewards
from rlconform.grpo.config import RewardScalingConfig, RewardShapingConfig

OF_FOUR = RewardShapingConfig(overlong_buffer_length=4)


@settings(deadline=None)
@given(st.lists(st.floats(-10, 10), max_size=8), st.floats(-5, 5), st.floats(0.01, 5))
def test_scaling_is_that_of_a_loop(rewards: list[float], start: float, extent: float) -> None:
    scaling = RewardScalingConfig(
        source_min=start, source_max=start + extent, target_min=-1.0, target_max=3.0
    )
    expected = []
    for reward in rewards:
        held = min(max(reward, scaling.source_min), scaling.source_max)
        share = (held - scaling.source_min) / (scaling.source_max - scaling.source_min)
        expected.append(-1.0 + share * 4.0)
    scaled = scale_rewards(torch.tensor(rewards, dtype=torch.float64), scaling)
    assert scaled.tolist() == pytest.approx(expected, abs=1e-12)


def test_the_ends_of_a_range_are_met_exactly() -> None:
    scaling = RewardScalingConfig(source_min=0.1, source_max=0.7, target_min=-0.3, target_max=0.9)
    ends = torch.tensor([0.1, 0.7, -5.0, 5.0], dtype=torch.float64)
    assert scale_rewards(ends, scaling).tolist() == [-0.3, 0.9, -0.3, 0.9]


def test_a_range_can_be_turned_around() -> None:
    turned = scale_rewards(
        torch.tensor([0.0, 0.25, 1.0]), RewardScalingConfig(target_min=1, target_max=0)
    )
    assert turned.tolist() == [1, 0.75, 0]


def test_a_reward_that_is_no_number_stays_none() -> None:
    assert scale_rewards(torch.tensor([math.nan]), RewardScalingConfig()).isnan().all()


@pytest.mark.parametrize(
    ("bounds", "named"),
    [
        ({"source_min": 1.0}, "source_min"),
        ({"source_min": 2.0}, "source_min"),
        ({"source_max": math.nan}, "source_max"),
        ({"target_min": -math.inf}, "target_min"),
    ],
)
def test_ranges_that_can_not_be_mapped_are_refused(bounds: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        RewardScalingConfig(**bounds)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 300), max_size=8),
    st.integers(1, 100),
    st.integers(0, 100),
    st.floats(0, 4),
)
def test_the_penalty_is_that_of_a_loop(
    lengths: list[int], buffer: int, free: int, price: float
) -> None:
    shaping = RewardShapingConfig(overlong_buffer_length=buffer, overlong_buffer_penalty=price)
    expected = []
    for length in lengths:
        if length <= free:
            expected.append(0.0)
        elif length < free + buffer:
            expected.append(price * (free - length) / buffer)
        else:
            expected.append(-price)
    got = overlong_penalty(torch.tensor(lengths, dtype=torch.int64), shaping, free + buffer)
    assert got.tolist() == pytest.approx(expected, rel=1e-6)


def test_the_penalty_rises_over_the_buffer() -> None:
    lengths = torch.tensor([0, 16, 17, 18, 20, 25])
    got = overlong_penalty(lengths, OF_FOUR, 20)
    assert got.tolist() == [0, 0, -0.25, -0.5, -1, -1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shaping_adds_the_penalty(dtype: torch.dtype) -> None:
    rewards = torch.tensor([1.0, 1.0, 0.0], dtype=dtype)
    shaped = shape_rewards(rewards, torch.tensor([4, 18, 20]), OF_FOUR, 20)
    assert shaped.dtype == dtype
    assert shaped.tolist() == [1, 0.5, -1]


def test_lengths_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="same shape"):
        shape_rewards(torch.ones(2), torch.ones(2, 1), OF_FOUR, 20)


@pytest.mark.parametrize(
    "wrong",
    [
        {"overlong_buffer_length": 0},
        {"overlong_buffer_penalty": -1.0},
        {"overlong_buffer_penalty": math.nan},
        {"overlong_buffer_penalty": math.inf},
    ],
    ids=str,
)
def test_penalties_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RewardShapingConfig.model_validate(wrong)


def test_a_buffer_longer_than_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="overlong_buffer_length must be at most"):
        overlong_penalty(torch.tensor([1]), OF_FOUR, 3)

"""Group baselines and advantages are compared with loops over Python floats."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.grpo.algorithm.advantages import (
    broadcast_to_tokens,
    compute_advantages,
    group_baseline,
    group_of,
)
from rlconform.plane.columns import mint_sample_ids

GROUPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-8, 8)), min_size=1, max_size=24)


def naive(
    rewards: list[float], groups: list[str], leave_one_out: bool
) -> tuple[list[float], list[float]]:
    of_group: dict[str, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        of_group[group].append(row)
    baseline, std = [], []
    for row, group in enumerate(groups):
        whole = [rewards[other] for other in of_group[group]]
        others = [rewards[other] for other in of_group[group] if other != row]
        held_against = others if leave_one_out and others else whole
        baseline.append(statistics.fmean(held_against))
        std.append(statistics.stdev(whole) if len(whole) > 1 else 0.0)
    return baseline, std


@settings(deadline=None)
@given(GROUPS, st.booleans())
def test_baseline_and_std_are_those_of_a_loop(
    rows: list[tuple[str, int]], leave_one_out: bool
) -> None:
    groups = [group for group, _ in rows]
    rewards = [tenths / 10 for _, tenths in rows]
    baseline, std = group_baseline(
        torch.tensor(rewards, dtype=torch.float64), groups, leave_one_out
    )
    expected_baseline, expected_std = naive(rewards, groups, leave_one_out)
    assert baseline.tolist() == pytest.approx(expected_baseline, abs=1e-14)
    assert std.tolist() == pytest.approx(expected_std, abs=1e-14)


@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(deadline=None)
@given(reward=st.floats(-1e6, 1e6), size=st.integers(1, 33))
def test_equal_rewards_give_exactly_nothing(
    leave_one_out: bool, dtype: torch.dtype, reward: float, size: int
) -> None:
    rewards = torch.full((size,), reward, dtype=dtype)
    baseline, std = group_baseline(rewards, ["u"] * size, leave_one_out)
    assert torch.equal(baseline, rewards)
    assert torch.equal(std, torch.zeros(size, dtype=dtype))
    assert torch.equal(compute_advantages(rewards, baseline, std), torch.zeros(size, dtype=dtype))


def test_rewards_that_differ_in_the_last_bit_have_a_std() -> None:
    rewards = torch.tensor([0.1, math.nextafter(0.1, 1)], dtype=torch.float64)
    _, std = group_baseline(rewards, ["u", "u"])
    assert (std > 0).all()


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_a_group_of_one_is_its_own_baseline(leave_one_out: bool) -> None:
    rewards = torch.tensor([0.3, 5.0, 7.0])
    baseline, std = group_baseline(rewards, ["alone", "u", "u"], leave_one_out)
    assert baseline[0] == rewards[0]
    assert std[0] == 0


def test_leaving_one_out_holds_each_row_against_the_others() -> None:
    rewards = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    baseline, std = group_baseline(rewards, ["u"] * 4, leave_one_out=True)
    assert baseline.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert std.tolist() == pytest.approx([0.5] * 4), "the whole group's, so that it stays together"


@settings(deadline=None)
@given(GROUPS, st.randoms(use_true_random=False))
def test_a_row_has_the_same_baseline_wherever_it_lies(
    rows: list[tuple[str, int]], random: object
) -> None:
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    rewards = torch.tensor([float(reward) for _, reward in rows])
    groups = [group for group, _ in rows]
    baseline, std = group_baseline(rewards, groups, True)
    moved, moved_std = group_baseline(rewards[order], [groups[row] for row in order], True)
    torch.testing.assert_close(moved, baseline[order], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(moved_std, std[order], rtol=1e-6, atol=1e-6)


def test_no_rows_have_no_baseline() -> None:
    baseline, std = group_baseline(torch.empty(0), [])
    assert baseline.shape == std.shape == (0,)


@pytest.mark.parametrize(
    ("rewards", "groups", "message"),
    [
        (torch.zeros(2), ["u"], "1 groups for 2 rewards"),
        (torch.zeros(2, 1), ["u", "u"], "floating point"),
        (torch.zeros(2, dtype=torch.int64), ["u", "u"], "floating point"),
        (torch.tensor([0.0, math.nan]), ["u", "u"], "not finite"),
        (torch.tensor([0.0, math.inf]), ["u", "u"], "not finite"),
    ],
)
def test_rewards_that_can_not_be_compared_are_refused(
    rewards: torch.Tensor, groups: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        group_baseline(rewards, groups)


@settings(deadline=None)
@given(GROUPS, st.booleans(), st.sampled_from([0.0, 1e-6, 0.5]))
def test_advantages_are_those_of_a_loop(
    rows: list[tuple[str, int]], normalize: bool, epsilon: float
) -> None:
    rewards = torch.tensor([reward / 10 for _, reward in rows], dtype=torch.float64)
    baseline, std = group_baseline(rewards, [group for group, _ in rows])
    expected = []
    for r, b, s in zip(rewards.tolist(), baseline.tolist(), std.tolist(), strict=True):
        if not normalize:
            expected.append(r - b)
        else:
            expected.append((r - b) / (s + epsilon) if s > 0 else 0.0)
    advantages = compute_advantages(rewards, baseline, std, normalize, epsilon)
    assert advantages.tolist() == pytest.approx(expected, abs=1e-12)


def test_advantages_keep_the_dtype_of_rewards() -> None:
    rewards = torch.tensor([0.0, 1.0])
    baseline, std = group_baseline(rewards, ["u", "u"])
    assert compute_advantages(rewards, baseline, std).dtype == torch.float32


def test_columns_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="same shape"):
        compute_advantages(torch.zeros(2), torch.zeros(2, 1), torch.zeros(2))
    with pytest.raises(ValueError, match="epsilon"):
        compute_advantages(torch.zeros(2), torch.zeros(2), torch.zeros(2), epsilon=-1)


def test_each_trained_token_has_the_advantage_of_its_row() -> None:
    spread = broadcast_to_tokens(torch.tensor([2.0, -1.0]), torch.tensor([[0, 1, 1], [1, 0, 0]]))
    assert spread.tolist() == [[0, 2, 2], [-1, 0, 0]]


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="token_mask"):
        broadcast_to_tokens(torch.zeros(2), torch.ones(3, 4))
    with pytest.raises(ValueError, match="token_mask"):
        broadcast_to_tokens(torch.zeros(2, 4), torch.ones(2, 4))


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True), st.integers(1, 12))
def test_a_groups_rows_are_those_of_its_prompt(uids: list[str], size: int) -> None:
    ids = mint_sample_ids(uids, size)
    assert [group_of(sample_id) for sample_id in ids] == [u for u in uids for _ in range(size)]


@pytest.mark.parametrize("sample_id", ["", "u0", "u0_g", "u0_gx", "u0_g-1"])
def test_an_id_without_a_group_is_refused(sample_id: str) -> None:
    with pytest.raises(ValueError, match="names no group"):
        group_of(sample_id)

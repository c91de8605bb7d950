"""KL estimates and metrics of a rollout are compared with loops over Python floats."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.grpo.algorithm.rollout_statistics import (
    LOG_RATIO_BOUND,
    k3,
    log_ratio,
    rollout_metrics,
)

LOGPROBS = st.floats(-15, 0)


@settings(deadline=None)
@given(LOGPROBS, LOGPROBS)
def test_k3_is_that_of_a_loop(p: float, q: float) -> None:
    double = torch.float64
    got = k3(torch.tensor(p, dtype=double), torch.tensor(q, dtype=double)).item()
    assert got == pytest.approx(math.exp(q - p) - (q - p) - 1, rel=1e-9, abs=1e-12)
    assert got >= 0


def test_k3_is_nothing_where_the_policies_agree() -> None:
    logprobs = -torch.rand(5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(k3(logprobs, logprobs), torch.zeros(5))


def test_the_average_of_k3_over_what_p_samples_is_the_kl() -> None:
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    q = torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64)
    kl = (p * (p / q).log()).sum()
    torch.testing.assert_close((p * k3(p.log(), q.log())).sum(), kl)


def test_the_gradient_of_k3_is_one_minus_the_ratio() -> None:
    p = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([-1.5, -1.0, -0.5], dtype=torch.float64)
    k3(p, q).sum().backward()
    expected = [1 - math.exp(b - a) for a, b in zip(p.tolist(), q.tolist(), strict=True)]
    assert p.grad is not None
    assert p.grad.tolist() == pytest.approx(expected)


def test_small_differences_are_not_lost_to_rounding() -> None:
    p, q = torch.tensor([-2.0]), torch.tensor([-1.999])
    difference = (q.double() - p.double()).item()
    expected = math.expm1(difference) - difference
    assert k3(p, q).item() == pytest.approx(expected, rel=1e-2)
    assert (q - p).exp().sub(1).sub(q - p).item() != pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("infinite", [(-math.inf, 0.0), (0.0, -math.inf), (-500.0, 0.0)])
def test_no_ratio_overflows(infinite: tuple[float, float]) -> None:
    p, q = map(torch.tensor, infinite)
    assert log_ratio(p, q).abs() == LOG_RATIO_BOUND
    assert torch.isfinite(k3(p, q))


def test_what_is_no_number_stays_none() -> None:
    assert k3(torch.tensor(math.nan), torch.tensor(-1.0)).isnan()


def test_a_rollout_is_summed_up() -> None:
    numbers = rollout_metrics(
        torch.tensor([0.0, 1.0, 0.5, 0.5]),
        torch.tensor([0.7, 0.7, 0.0, 0.0]),
        [3, 5, 8, 0],
        torch.tensor([False, False, True, False]),
    )
    assert numbers == {
        "reward": 0.5,
        "reward_min": 0.0,
        "reward_max": 1.0,
        "zero_std": 0.5,
        "response_length": 4.0,
        "response_length_max": 8.0,
        "truncated": 0.25,
    }


def test_an_empty_or_ragged_rollout_is_refused() -> None:
    with pytest.raises(ValueError, match="expected N >= 1"):
        rollout_metrics(torch.empty(0), torch.empty(0), [], torch.empty(0))
    with pytest.raises(ValueError, match="expected N >= 1"):
        rollout_metrics(torch.ones(2), torch.ones(2), [1], torch.zeros(2))

"""The gradients of the loss are those of its value, or those that a variant defines instead."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rlconform.grpo.config import ClippedPGLossConfig

from .batches import a_batch, loss_of, one_token, rows_of
from .options import OPTIONS, PLAIN, penalty

#: Options whose gradient is not that of their value, by design.
NOT_OF_VALUE = {"unbiased kl", "on-policy kl", "cispo", "on-policy ratio"}


@pytest.mark.parametrize("name", [n for n in OPTIONS if n not in NOT_OF_VALUE])
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    options = OPTIONS[name]
    batch = rows_of(a_batch(), range(4))
    fixed = {name: values for name, values in batch.items() if name != "logprobs"}

    def of_logprobs(logprobs: Tensor) -> Tensor:
        return loss_of({"logprobs": logprobs, **fixed}, options)[0]

    assert torch.autograd.gradcheck(of_logprobs, batch["logprobs"].requires_grad_())


GRADIENTS = {
    "unbiased kl": lambda t: t["surrogate"] + 0.1 * (t["new"] - t["reference"]),
    "on-policy kl": lambda t: (
        t["surrogate"] + 0.1 * math.exp(t["new"] - t["engine"]) * (t["new"] - t["reference"])
    ),
    "cispo": lambda t: -t["a"] * min(max(math.exp(t["new"] - t["old"]), 0.8), 1.2),
    "on-policy ratio": lambda t: -t["a"],
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_that_are_not_those_of_the_value_are_those_of_a_loop(name: str) -> None:
    batch = a_batch()
    batch["logprobs"].requires_grad_()
    loss_of(batch, OPTIONS[name])[0].backward()  # type: ignore[no-untyped-call]
    got = batch["logprobs"].grad
    assert got is not None
    trained = batch["token_mask"].bool() & batch["sample_mask"].bool()[:, None]
    lists: dict[str, Any] = {key: values.tolist() for key, values in batch.items()}
    expected = torch.zeros_like(got)
    for row, at in trained.nonzero().tolist():
        token = {key: lists[f"{key}_logprobs"][row][at] for key in ("old", "reference", "engine")}
        token |= {"new": lists["logprobs"][row][at], "a": lists["advantages"][row][at]}
        r, a = math.exp(token["new"] - token["old"]), token["a"]
        flat = (a > 0 and r > 1.2) or (a < 0 and r < 0.8)
        token["surrogate"] = 0.0 if flat else -a * r
        expected[row, at] = GRADIENTS[name](token) / int(trained.sum())
    torch.testing.assert_close(got, expected)


def test_row_four_of_the_comparison_with_nemo_rl() -> None:
    """With log p = -1, log q = -2: the same value, and the gradients 1 and 1 - 1/e."""
    for gradient, expected in (("unbiased", 1.0), ("direct", 1 - math.exp(-1))):
        batch = one_token(-1.0, -1.0, 0.0, reference_logprobs=-2.0)
        batch["logprobs"].requires_grad_()
        options = ClippedPGLossConfig(
            reference_policy_kl_penalty=1.0,
            reference_policy_kl_gradient=gradient,  # type: ignore[arg-type]
        )
        loss, _ = loss_of(batch, options)
        loss.backward()  # type: ignore[no-untyped-call]
        assert loss.item() == pytest.approx(math.exp(-1))
        assert batch["logprobs"].grad is not None
        assert batch["logprobs"].grad.item() == pytest.approx(expected)


def test_a_bound_holds_the_penalty_of_a_rare_token() -> None:
    batch = one_token(-26.0, -26.0, 0.0, reference_logprobs=-1.0)
    batch["logprobs"].requires_grad_()
    loss, _ = loss_of(batch, penalty())
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(1.0)
    assert batch["logprobs"].grad is not None
    assert batch["logprobs"].grad.item() == 0
    unbounded, _ = loss_of(batch, penalty(kl_output_clamp_value=None))
    assert unbounded.item() == pytest.approx(0.1 * 4.85e8, rel=1e-3)


def test_on_policy_the_gradient_is_that_of_reinforce() -> None:
    batch = a_batch()
    batch["logprobs"] = batch["old_logprobs"].clone().requires_grad_()
    loss_of(batch, PLAIN)[0].backward()  # type: ignore[no-untyped-call]
    trained = batch["token_mask"] * batch["sample_mask"].unsqueeze(1)
    expected = -batch["advantages"] * trained / trained.sum()
    torch.testing.assert_close(batch["logprobs"].grad, expected)


def test_old_logprobs_may_be_those_that_are_trained() -> None:
    batch = a_batch()
    batch["logprobs"].requires_grad_()
    loss_of({**batch, "old_logprobs": batch["logprobs"]}, PLAIN)[0].backward()  # type: ignore[no-untyped-call]
    assert batch["logprobs"].grad is not None
    assert batch["logprobs"].grad.count_nonzero() > 0

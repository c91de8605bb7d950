"""Masked tokens do not change the loss; infinite logprobs leave it finite, NaN is not hidden."""

from __future__ import annotations

import math

import pytest
import torch

from rlconform.grpo.config import ClippedPGLossConfig

from .batches import ROWS, a_batch, loss_of, one_token
from .options import ALL_TERMS, OPTIONS, PLAIN, every_option, replace


@every_option
def test_padding_changes_nothing(options: ClippedPGLossConfig) -> None:
    batch = a_batch()
    wide = dict(batch)
    for name, values in batch.items():
        if values.dim() == 2:
            beyond = math.nan if values.is_floating_point() else 0
            wide[name] = torch.nn.functional.pad(values, (0, 5), value=beyond)
    torch.testing.assert_close(loss_of(wide, options)[0], loss_of(batch, options)[0])


@every_option
@pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf])
def test_what_is_masked_reaches_neither_loss_nor_gradients(
    options: ClippedPGLossConfig, filler: float
) -> None:
    batch = a_batch()
    clean, _ = loss_of(batch, options)
    off = ~(batch["token_mask"].bool() & batch["sample_mask"].bool().unsqueeze(1))
    for values in batch.values():
        if values.is_floating_point() and values.dim() == 2:
            values[off] = filler
            assert not torch.isfinite(values).all()
    batch["logprobs"].requires_grad_()
    loss, metrics = loss_of(batch, options)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == clean.item()
    assert all(torch.isfinite(value) for value in metrics.values())
    gradients = batch["logprobs"].grad
    assert gradients is not None
    assert torch.equal(gradients[off], torch.zeros_like(gradients[off]))
    assert torch.isfinite(gradients).all()


@every_option
def test_a_batch_of_which_nothing_is_trained_costs_nothing(options: ClippedPGLossConfig) -> None:
    batch = a_batch()
    batch["sample_mask"] = torch.zeros(ROWS)
    batch["logprobs"].requires_grad_()
    loss, metrics = loss_of(batch, options, valid_tokens=0, valid_samples=0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    assert all(value.item() == 0 for value in metrics.values())
    assert batch["logprobs"].grad is not None
    assert batch["logprobs"].grad.count_nonzero() == 0


@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
@pytest.mark.parametrize(
    ("logprob", "old"), [(-1.0, -math.inf), (-math.inf, -1.0), (-1.0, -200.0), (-200.0, -1.0)]
)
def test_an_infinite_ratio_is_held(logprob: float, old: float, advantage: float) -> None:
    batch = one_token(logprob, old, advantage, engine_logprobs=-1.0)
    batch["logprobs"].requires_grad_()
    loss, metrics = loss_of(batch, ALL_TERMS)
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss)
    assert math.isfinite(metrics["ratio"].item())
    assert batch["logprobs"].grad is not None
    assert batch["logprobs"].grad.item() == pytest.approx(0, abs=1e-3)


CORRECTING = [name for name, one in OPTIONS.items() if one.use_importance_sampling_correction]


@pytest.mark.parametrize("lost", [-math.inf, math.inf, math.nan])
@pytest.mark.parametrize("name", [*CORRECTING, "plain", "on-policy kl"])
def test_tokens_without_an_engine_logprob_count_but_do_not_train(name: str, lost: float) -> None:
    batch = a_batch()
    trained = batch["token_mask"].bool() & batch["sample_mask"].bool()[:, None]
    row = int(trained[0].any() == 0)
    at = int(trained[row].nonzero()[0])
    batch["engine_logprobs"][row, at] = lost
    batch["logprobs"].requires_grad_()
    loss, metrics = loss_of(batch, OPTIONS[name])
    loss.backward()  # type: ignore[no-untyped-call]
    gradient = batch["logprobs"].grad
    assert gradient is not None
    assert all(torch.isfinite(value) for value in (loss, gradient.sum(), *metrics.values()))
    assert loss.abs() < 10
    assert metrics["engine_unknown"].item() == 1
    if name not in CORRECTING:
        return
    by_row = "gspo" in name or name == "seq-mask-tis"
    silent = replace(OPTIONS[name], reference_policy_kl_penalty=0)
    batch["logprobs"] = batch["logprobs"].detach().requires_grad_()
    loss_of(batch, silent)[0].backward()  # type: ignore[no-untyped-call]
    gradient = batch["logprobs"].grad
    assert gradient is not None
    assert gradient[row].count_nonzero() == 0 if by_row else gradient[row, at] == 0


def test_a_trained_token_without_a_number_is_not_hidden() -> None:
    loss, _ = loss_of(one_token(math.nan, -1.0, 1.0), PLAIN)
    assert loss.isnan()

"""Sums of micro-batches, divided once by the counts of all, are the means of the whole batch."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from rlconform.grpo.algorithm.loss import policy_gradient_loss
from rlconform.grpo.algorithm.masking import count_valid
from rlconform.grpo.algorithm.normalisation import loss_count, means_of
from rlconform.grpo.config import ClippedPGLossConfig

ROWS, WIDTH = 6, 9
OPTIONS = [
    ClippedPGLossConfig(
        reference_policy_kl_penalty=0.1,
        ratio_clip_c=3.0,
        use_importance_sampling_correction=True,
        truncated_importance_sampling_type="tis",
        truncated_importance_sampling_ratio=1.5,
        token_level_loss=token_level,
    )
    for token_level in (True, False)
]
every_level = pytest.mark.parametrize("options", OPTIONS, ids=["by token", "by sequence"])


def a_batch() -> dict[str, Tensor]:
    """Rows of random masks; row 2 is masked, row 4 has no trained token."""
    draw = torch.Generator().manual_seed(0)
    names = ["logprobs", "old_logprobs", "reference_logprobs", "advantages", "engine_logprobs"]
    noise = {name: torch.randn(ROWS, WIDTH, generator=draw).double() / 2 for name in names}
    token_mask = (torch.rand(ROWS, WIDTH, generator=draw) < 0.7).int()
    token_mask[4] = 0
    return {**noise, "token_mask": token_mask, "sample_mask": (torch.arange(ROWS) != 2).int()}


def loss_of(
    batch: dict[str, Tensor], options: ClippedPGLossConfig, counts: tuple[int | None, int | None]
) -> tuple[Tensor, dict[str, Tensor]]:
    tokens, samples = counts
    return policy_gradient_loss(  # type: ignore[misc]
        **batch, options=options, valid_tokens=tokens, valid_samples=samples
    )


@every_level
def test_sums_of_parts_divided_once_are_the_means_of_the_batch(
    options: ClippedPGLossConfig,
) -> None:
    batch = a_batch()
    counts = count_valid(batch["token_mask"], batch["sample_mask"])
    at_once, in_parts = (batch["logprobs"].clone().requires_grad_() for _ in range(2))

    loss, metrics = loss_of({**batch, "logprobs": at_once}, options, counts)
    loss.backward()  # type: ignore[no-untyped-call]

    sums: Counter[str] = Counter()
    for rows in (slice(0, 1), slice(1, 4), slice(4, 6)):
        part = {name: values[rows] for name, values in {**batch, "logprobs": in_parts}.items()}
        loss_of_part, of_part = loss_of(part, options, (None, None))
        loss_of_part.backward()  # type: ignore[no-untyped-call]
        of_part["loss"] = loss_of_part
        sums.update({name: value.item() for name, value in of_part.items()})  # type: ignore[misc]

    expected = {name: value.item() for name, value in metrics.items()} | {"loss": loss.item()}
    assert means_of(sums, options) == pytest.approx(expected, rel=1e-12)
    assert loss_count(sums, options) == counts[0 if options.token_level_loss else 1]
    assert at_once.grad is not None
    assert in_parts.grad is not None
    torch.testing.assert_close(in_parts.grad / loss_count(sums, options), at_once.grad)


@every_level
def test_without_trained_tokens_nothing_is_divided_by_zero(options: ClippedPGLossConfig) -> None:
    sums = {"loss": 0.0, "policy_loss": 0.0, "ratio": 0.0, "tokens": 0.0, "samples": 0.0}
    assert means_of(sums, options) == sums
    assert loss_count(sums, options) == 1

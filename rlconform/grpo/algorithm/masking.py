"""Masks of the tokens and rows that count in the loss."""

from __future__ import annotations

import torch
from torch import Tensor


def trained_tokens(token_mask: Tensor, sample_mask: Tensor) -> Tensor:
    """Return a (B, T) bool mask of the policy's tokens in all rows that are not dropped.

    ``token_mask`` is (B, T) and ``sample_mask`` (B,), 0 for dropped rows. Other shapes raise
    ``ValueError``: a ``sample_mask`` of (B, 1) would be broadcast wrongly.
    """
    if token_mask.dim() != 2 or sample_mask.shape != token_mask.shape[:1]:
        raise ValueError(
            f"token_mask must be (B, T) and sample_mask (B,), got {tuple(token_mask.shape)} and "
            f"{tuple(sample_mask.shape)}"
        )
    return token_mask.bool() & sample_mask.bool().unsqueeze(1)


def count_valid(token_mask: Tensor, sample_mask: Tensor) -> tuple[int, int]:
    """Count the trained tokens and the rows with trained tokens: the two normalisers of the loss.

    The caller adds up the counts over all ranks and micro-batches that share an optimizer step,
    before the first backward pass. The shapes are those of ``trained_tokens``.
    """
    trained = trained_tokens(token_mask, sample_mask)
    return int(trained.sum()), int(trained.any(dim=1).sum())


def mask_overlong(sample_mask: Tensor, truncated: Tensor) -> Tensor:
    """Return ``sample_mask`` (N,) without the rows that were cut off at the length limit.

    ``truncated`` (N,) is true where no end of sequence was generated: the reward of such a row is
    for half a response. Source: overlong filtering, DAPO (Yu et al. 2025, arXiv 2503.14476), 3.4.
    """
    _check_same_shape(1, sample_mask=sample_mask, truncated=truncated)
    return torch.where(truncated.bool(), 0, sample_mask).to(sample_mask.dtype)


def sequence_logprob_error(
    old_logprobs: Tensor, engine_logprobs: Tensor, token_mask: Tensor
) -> Tensor:
    """Measure how far the trainer's probabilities differ from the generation engine's, row by row.

    The error is the mean ratio of the two probabilities over a row's trained tokens::

        error_i = 1 / |y_i| * sum_t exp |log pi_old(y_it) - log pi_engine(y_it)|

    It is 1 for equal logprobs and for a row without trained tokens. On-policy, trainer and engine
    have the same weights, so a large error means a broken engine, weights that did not arrive, or
    shifted tokens. NeMo-RL calls it "token multiplicative probability error".

    All arguments are (N, S), else ``ValueError``; the result is (N,) float64, and infinite or NaN
    for infinite or NaN logprobs.
    """
    logprobs = {"old_logprobs": old_logprobs, "engine_logprobs": engine_logprobs}
    _check_same_shape(2, **logprobs, token_mask=token_mask)
    trained = token_mask.bool()
    difference = (old_logprobs.double() - engine_logprobs.double()).abs()
    factors = torch.where(trained, difference, 0).exp()
    counts = trained.sum(dim=1)
    mean = torch.where(trained, factors, 0).sum(dim=1) / counts.clamp(min=1)
    return torch.where(counts > 0, mean, 1.0)


def mask_logprob_error(sample_mask: Tensor, error: Tensor, threshold: float) -> Tensor:
    """Drop rows with ``error`` above ``threshold`` or NaN; ``ValueError`` if ``threshold`` < 1."""
    _check_same_shape(1, sample_mask=sample_mask, error=error)
    if not threshold >= 1:
        raise ValueError(
            f"threshold must be at least 1, the error of equal logprobs; got {threshold}"
        )
    return torch.where(error <= threshold, sample_mask, 0).to(sample_mask.dtype)  # NaN is dropped


def _check_same_shape(dims: int, **tensors: Tensor) -> None:
    shapes = {name: tuple(values.shape) for name, values in tensors.items()}
    if len({*shapes.values()}) > 1 or any(len(shape) != dims for shape in shapes.values()):
        raise ValueError(f"expected the same shape, with {dims} dimensions; got {shapes}")

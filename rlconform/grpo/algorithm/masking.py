"""Masks of the tokens and rows that count in the loss."""

from __future__ import annotations

import torch
from torch import Tensor


def trained_tokens(token_mask: Tensor, sample_mask: Tensor) -> Tensor:
    """Find the tokens that count in the loss: the policy's, in rows that are not dropped.

    Args:
        token_mask: (B, T), nonzero at the trained tokens.
        sample_mask: (B,), 0 for rows that are dropped.

    Returns:
        (B, T) bool.

    Raises:
        ValueError: A shape differs; a ``sample_mask`` of (B, 1) would be broadcast wrongly.
    """
    if token_mask.dim() != 2 or sample_mask.shape != token_mask.shape[:1]:
        raise ValueError(
            f"token_mask must be (B, T) and sample_mask (B,), got {tuple(token_mask.shape)} and "
            f"{tuple(sample_mask.shape)}"
        )
    return token_mask.bool() & sample_mask.bool().unsqueeze(1)


def count_valid(token_mask: Tensor, sample_mask: Tensor) -> tuple[int, int]:
    """Count the trained tokens and the rows that have any: the two normalisers of the loss.

    The caller adds up the counts over all ranks and micro-batches that share an optimizer step,
    before the first backward pass.

    Args:
        token_mask: (B, T), nonzero at the trained tokens.
        sample_mask: (B,), 0 for rows that are dropped.

    Returns:
        ``valid_tokens`` and ``valid_samples``.

    Raises:
        ValueError: A shape differs.
    """
    trained = trained_tokens(token_mask, sample_mask)
    return int(trained.sum()), int(trained.any(dim=1).sum())


def mask_overlong(sample_mask: Tensor, truncated: Tensor) -> Tensor:
    """Drop rows that were cut off at the length limit: their reward judges half a response.

    Overlong filtering of DAPO (Yu et al. 2025, arXiv 2503.14476), section 3.4.

    Args:
        sample_mask: (N,), 0 for rows that are dropped already.
        truncated: (N,) bool, true where no end of sequence was generated.

    Returns:
        (N,), a new ``sample_mask`` of the same dtype.

    Raises:
        ValueError: The shapes differ or are not (N,).
    """
    if sample_mask.dim() != 1 or sample_mask.shape != truncated.shape:
        raise ValueError(
            f"sample_mask and truncated must have the same shape (N,), got "
            f"{tuple(sample_mask.shape)} and {tuple(truncated.shape)}"
        )
    return torch.where(truncated.bool(), 0, sample_mask).to(sample_mask.dtype)


def sequence_logprob_error(
    old_logprobs: Tensor, engine_logprobs: Tensor, token_mask: Tensor
) -> Tensor:
    """Measure how far the trainer's probabilities differ from the generation engine's, row by row.

    It is the mean ratio of the two probabilities over a row's trained tokens::

        error_i = 1 / |y_i| * sum_t exp |log pi_old(y_it) - log pi_engine(y_it)|

    It is 1 where both agree, and for a row without trained tokens. With on-policy data both use the
    same weights, so a large error means a broken engine, weights that did not arrive, or shifted
    tokens. NeMo-RL calls it "token multiplicative probability error".

    Args:
        old_logprobs: (N, S) of the policy before the step.
        engine_logprobs: (N, S) from the generation engine.
        token_mask: (N, S), nonzero at the trained tokens.

    Returns:
        (N,) float64, at least 1; infinite or NaN if the logprobs are.

    Raises:
        ValueError: The shapes differ or are not (N, S).
    """
    if token_mask.dim() != 2 or not (
        old_logprobs.shape == engine_logprobs.shape == token_mask.shape
    ):
        shapes = [tuple(values.shape) for values in (old_logprobs, engine_logprobs, token_mask)]
        raise ValueError(f"logprobs and token_mask must have the same shape (N, S), got {shapes}")
    trained = token_mask.bool()
    difference = (old_logprobs.double() - engine_logprobs.double()).abs()
    factors = torch.where(trained, difference, 0).exp()
    counts = trained.sum(dim=1)
    mean = torch.where(trained, factors, 0).sum(dim=1) / counts.clamp(min=1)
    return torch.where(counts > 0, mean, 1.0)


def mask_logprob_error(sample_mask: Tensor, error: Tensor, threshold: float) -> Tensor:
    """Drop rows whose ``sequence_logprob_error`` is above ``threshold`` or NaN.

    Args:
        sample_mask: (N,), 0 for rows that are dropped already.
        error: (N,), from ``sequence_logprob_error``.
        threshold: Largest error that is kept, at least 1; 1 keeps exact agreement only.

    Returns:
        (N,), a new ``sample_mask`` of the same dtype.

    Raises:
        ValueError: The shapes differ or are not (N,), or the threshold is below 1.
    """
    if sample_mask.dim() != 1 or sample_mask.shape != error.shape:
        raise ValueError(
            f"sample_mask and error must have the same shape (N,), got {tuple(sample_mask.shape)} "
            f"and {tuple(error.shape)}"
        )
    if not threshold >= 1:
        raise ValueError(
            f"threshold must be at least 1, the error of equal logprobs; got {threshold}"
        )
    return torch.where(error <= threshold, sample_mask, 0).to(sample_mask.dtype)  # NaN is dropped

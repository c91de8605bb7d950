"""Which tokens and rows count in the loss: masks made of what is known before training."""

from __future__ import annotations

import torch
from torch import Tensor


def trained_tokens(token_mask: Tensor, sample_mask: Tensor) -> Tensor:
    """Where the loss looks: tokens of the policy, in rows that are not dropped.

    Args:
        token_mask: (B, T), not 0 at the tokens that are trained.
        sample_mask: (B,), 0 drops a row.

    Returns:
        (B, T) bool.

    Raises:
        ValueError: Other shapes; a ``sample_mask`` of (B, 1) would be broadcast wrongly.
    """
    if token_mask.dim() != 2 or sample_mask.shape != token_mask.shape[:1]:
        raise ValueError(
            f"token_mask must be (B, T) and sample_mask (B,), got {tuple(token_mask.shape)} and "
            f"{tuple(sample_mask.shape)}"
        )
    return token_mask.bool() & sample_mask.bool().unsqueeze(1)


def count_valid(token_mask: Tensor, sample_mask: Tensor) -> tuple[int, int]:
    """Trained tokens, and rows that have any: the two normalisers of a loss.

    Counts of a batch's parts add up to those of the batch. The caller adds them up over all ranks
    and micro-batches that share an optimizer step, before the first backward pass.

    Args:
        token_mask: (B, T), not 0 at the tokens that are trained.
        sample_mask: (B,), 0 drops a row.

    Returns:
        ``valid_tokens`` and ``valid_samples``.

    Raises:
        ValueError: Other shapes.
    """
    trained = trained_tokens(token_mask, sample_mask)
    return int(trained.sum()), int(trained.any(dim=1).sum())


def mask_overlong(sample_mask: Tensor, truncated: Tensor) -> Tensor:
    """Drop rows whose generation was cut off at the length limit: their reward judges a torso.

    Overlong filtering of DAPO (Yu et al. 2025, arXiv 2503.14476), section 3.4.

    Args:
        sample_mask: (N,), 0 for rows that are dropped already.
        truncated: (N,) bool, true where no end of sequence was generated.

    Returns:
        (N,), a new ``sample_mask`` of the same dtype.

    Raises:
        ValueError: The two are not of one shape (N,).
    """
    if sample_mask.dim() != 1 or sample_mask.shape != truncated.shape:
        raise ValueError(
            f"sample_mask and truncated must be of one shape (N,), got {tuple(sample_mask.shape)} "
            f"and {tuple(truncated.shape)}"
        )
    return torch.where(truncated.bool(), 0, sample_mask).to(sample_mask.dtype)


def sequence_logprob_error(
    old_logprobs: Tensor, engine_logprobs: Tensor, token_mask: Tensor
) -> Tensor:
    """How far the trainer and the engine that generated a row disagree on it.

    The mean over a row's trained tokens of the factor between the two probabilities::

        error_i = 1 / |y_i| * sum_t exp |log pi_old(y_it) - log pi_engine(y_it)|

    which is 1 where they agree, and for a row without trained tokens. Both describe the same
    weights when data is on-policy, so that a large error means a broken engine, weights that did
    not arrive, or tokens that were shifted. The measure is NeMo-RL's "token multiplicative
    probability error", row by row.

    Args:
        old_logprobs: (N, S), of the policy before the step.
        engine_logprobs: (N, S), as generated.
        token_mask: (N, S), not 0 at the tokens that are trained.

    Returns:
        (N,) float64, at least 1; infinite or NaN where the logprobs are.

    Raises:
        ValueError: The three are not of one shape (N, S).
    """
    if token_mask.dim() != 2 or not (
        old_logprobs.shape == engine_logprobs.shape == token_mask.shape
    ):
        shapes = [tuple(values.shape) for values in (old_logprobs, engine_logprobs, token_mask)]
        raise ValueError(f"logprobs and token_mask must be of one shape (N, S), got {shapes}")
    trained = token_mask.bool()
    difference = (old_logprobs.double() - engine_logprobs.double()).abs()
    factors = torch.where(trained, difference, 0).exp()
    counts = trained.sum(dim=1)
    mean = torch.where(trained, factors, 0).sum(dim=1) / counts.clamp(min=1)
    return torch.where(counts > 0, mean, 1.0)


def mask_logprob_error(sample_mask: Tensor, error: Tensor, threshold: float) -> Tensor:
    """Drop rows whose ``sequence_logprob_error`` lies above ``threshold``, or is NaN.

    Args:
        sample_mask: (N,), 0 for rows that are dropped already.
        error: (N,), from ``sequence_logprob_error``.
        threshold: Largest error that is kept; at least 1, where only exact agreement is.

    Returns:
        (N,), a new ``sample_mask`` of the same dtype.

    Raises:
        ValueError: The two are not of one shape (N,), or a threshold below 1, which no row meets.
    """
    if sample_mask.dim() != 1 or sample_mask.shape != error.shape:
        raise ValueError(
            f"sample_mask and error must be of one shape (N,), got {tuple(sample_mask.shape)} and "
            f"{tuple(error.shape)}"
        )
    if not threshold >= 1:
        raise ValueError(f"no error is below 1, where logprobs agree; got threshold {threshold}")
    return torch.where(error <= threshold, sample_mask, 0).to(sample_mask.dtype)  # NaN is dropped

"""Batches of random values, parts of them, and the loss of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlconform.grpo.algorithm.loss import policy_gradient_loss
from rlconform.grpo.algorithm.masking import count_valid
from rlconform.grpo.config import ClippedPGLossConfig

ROWS, WIDTH = 8, 12


def a_batch(dtype: torch.dtype = torch.float64, seed: int = 0) -> dict[str, Tensor]:
    """Rows of different lengths; one is dropped, one has no trained token."""
    draw = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(ROWS, WIDTH, generator=draw, dtype=dtype)

    old = uniform(-3, -0.5)
    token_mask = (torch.rand(ROWS, WIDTH, generator=draw) < 0.7).int()
    token_mask[2] = 0
    sample_mask = torch.ones(ROWS, dtype=torch.int32)
    sample_mask[5] = 0
    return {
        "logprobs": old + uniform(-0.6, 0.6),
        "old_logprobs": old,
        "reference_logprobs": old + uniform(-0.5, 0.5),
        "advantages": uniform(-2, 2),
        "token_mask": token_mask,
        "sample_mask": sample_mask,
        "engine_logprobs": old + uniform(-0.7, 0.7),
    }


def one_token(logprob: float, old: float, advantage: float, **more: Any) -> dict[str, Tensor]:
    column = {"logprobs": logprob, "old_logprobs": old, "advantages": advantage}
    batch = {name: torch.tensor([[value]]) for name, value in (column | more).items()}
    batch.setdefault("reference_logprobs", batch["old_logprobs"])
    masks = {"token_mask": torch.ones(1, 1), "sample_mask": torch.ones(1)}
    return batch | masks


def counts(batch: dict[str, Tensor]) -> dict[str, int]:
    masks = batch["token_mask"], batch["sample_mask"]
    tokens, samples = count_valid(*masks)
    return {"valid_tokens": tokens, "valid_samples": samples}


def loss_of(
    batch: dict[str, Tensor], options: ClippedPGLossConfig, **valid: int
) -> tuple[Tensor, dict[str, Tensor]]:
    return policy_gradient_loss(**batch, options=options, **(valid or counts(batch)))  # type: ignore[arg-type]


def rows_of(batch: dict[str, Tensor], rows: Sequence[int]) -> dict[str, Tensor]:
    return {name: values[list(rows)] for name, values in batch.items()}


def parts_of(n_parts: int) -> list[list[int]]:
    size = ROWS // n_parts
    return [list(range(start, start + size)) for start in range(0, ROWS, size)]

"""``OpenStep``: what a rank keeps of a train step whose rows arrive in chunks.

    add_microbatch(logprobs, rows) ──▶ loss, for the backward pass; its metrics, added up
    check_chunks ──▶ error, unless every rank has trained on the same chunks
    sums ──▶ the update's sums over all ranks, on every rank

The gradients are in the model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract.fields import (
    ADVANTAGES,
    GENERATION_LOGPROBS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.grpo.algorithm.loss import policy_gradient_loss
from rlconform.grpo.config import ClippedPGLossConfig
from rlconform.grpo.workers.data_parallel import gather_over_ranks, sum_over_ranks
from rlconform.grpo.workers.witness import Witness


class TrainStepError(RuntimeError):
    """The calls of a train step came in a wrong order, or not every chunk ended on every rank."""


class PlanMismatch(ValueError):
    """The micro-batches of the ranks don't fit together, so no rank has begun its own."""


class OpenStep:
    """A train step between ``begin_train_step`` and its end."""

    def __init__(
        self, loss_fn: ClippedPGLossConfig, microbatch_rows: int, witness: Witness | None = None
    ) -> None:
        self.loss_fn = loss_fn
        self.microbatch_rows = microbatch_rows
        self.witness = witness
        self.flops = 0.0  # of this rank
        self.chunks_begun = 0
        self.chunks_done = 0
        self._own: defaultdict[str, float] = defaultdict(float)

    def add_microbatch(
        self, logprobs: Tensor, rows: TensorDict, sample_ids: Sequence[str] | None
    ) -> Tensor:
        """Return the loss of n rows, a scalar that isn't normalised; add up its metrics.

        ``logprobs`` is (n, T) with gradient, ``rows`` has the other columns on the same device.
        """
        if self.witness is not None and sample_ids is not None:
            logprobs = self.witness.add_zeros(logprobs, sample_ids)
        columns: Any = rows
        loss, metrics = policy_gradient_loss(
            logprobs,
            columns[PREV_LOGPROBS],
            columns.get(REFERENCE_POLICY_LOGPROBS, None),
            columns[ADVANTAGES],
            columns[TOKEN_MASK],
            columns[SAMPLE_MASK],
            self.loss_fn,
            valid_tokens=None,
            valid_samples=None,
            engine_logprobs=columns[GENERATION_LOGPROBS],
        )
        for name, value in {"loss": loss, **metrics}.items():
            self._own[name] += value.item()
        return loss

    def check_chunks(self, device: torch.device) -> None:
        """Raise ``TrainStepError`` unless all ranks did the same chunks, at least one; collective.

        All ranks raise alike, so none waits for another afterwards.
        """
        chunks = gather_over_ranks([self.chunks_begun, self.chunks_done], device)
        begun_and_done = {int(count) for count in chunks.flatten()}
        if len(begun_and_done) > 1 or 0 in begun_and_done:
            raise TrainStepError(
                f"expected at least one chunk, and each to end on every rank; got "
                f"{chunks.int().tolist()} [begun, done] by rank: abort the step"
            )

    @property
    def own_sums(self) -> dict[str, float]:
        """This rank's ``loss`` and unnormalised metrics; {} without a micro-batch."""
        return dict(self._own)

    def sums(self, device: torch.device) -> dict[str, float]:
        """Return ``loss`` and its unnormalised metrics, summed over all ranks; collective."""
        return dict(zip(self._own, sum_over_ranks(self._own.values(), device), strict=True))

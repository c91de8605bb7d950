"""``PolicyModel``: a data-parallel rank's policy, a model of transformers.

    logprobs      micro-batches ──▶ logprobs
    _run          micro-batches ──▶ logprobs ──▶ loss, a sum ──▶ backward, added up
    _update       sum over ranks ──▶ divide by the step's counts ──▶ clip ──▶ optimizer

``workers.policy`` has the steps of an update, which call these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.models import load_model, token_logprobs
from rlconform.grpo.workers.checkpoint import load_policy, save_policy
from rlconform.grpo.workers.data_parallel import PARALLELISMS, clip_gradients, whole_weights
from rlconform.grpo.workers.flops import ModelFlops
from rlconform.grpo.workers.microbatches import TokenSpan, slice_microbatch
from rlconform.grpo.workers.optimizer import build_optimizer, build_schedule
from rlconform.grpo.workers.policy import RankPolicy
from rlconform.grpo.workers.train_step import OpenStep


class PolicyModel(RankPolicy):
    """One rank's model, its frozen reference, optimizer and schedule."""

    def __init__(self, config: MasterConfig, device: torch.device) -> None:
        super().__init__(config, device)
        self._parallel = PARALLELISMS[config.policy.parallelism]()
        self.model = self._load()
        self.reference = self._load() if config.loss_fn.needs_reference_policy else None
        self.optimizer = build_optimizer(self.model, config.policy.optimizer)
        self.schedule = build_schedule(self.optimizer, config.policy.scheduler, self._updates)
        self._flops = ModelFlops.of(self.model)

    def _load(self) -> nn.Module:
        """Load the run's initial weights, wrapped for this rank."""
        policy = self._config.policy
        model: nn.Module = load_model(
            policy.model_name, precision=policy.precision, seed=self._config.grpo.seed
        )
        return self._parallel.wrap(model.to(self._device))

    def logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """Compute the logprobs, see ``RankPolicy.logprobs``."""
        return self._logprobs(self.model, rows, packing)

    def reference_logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """Compute ``logprobs`` under the initial weights; ``RuntimeError`` without a KL penalty."""
        if self.reference is None:
            raise RuntimeError("without loss_fn.reference_policy_kl_penalty there is no reference")
        return self._logprobs(self.reference, rows, packing)

    @torch.no_grad()
    def _logprobs(self, model: nn.Module, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        model.eval()
        result = torch.zeros(rows[INPUT_IDS].shape, dtype=torch.float32)
        size = self._config.policy.logprob_batch_size
        (spans,) = self._plan(rows, packing, 1, size, "logprob")
        for span in spans:
            logprobs = self._token_logprobs(model, slice_microbatch(rows, span, self._layout))
            result[span.start : span.stop, : logprobs.shape[1]] = logprobs.cpu()
        return result

    def weights(self) -> dict[str, Tensor]:
        """Return all weights by name on rank 0, see ``RankPolicy.weights``."""
        return whole_weights(self.model)

    def save(self, folder: Path, rank: int) -> None:
        """Write this rank's part of a checkpoint; every rank must call this."""
        save_policy(self, folder, rank)

    def load(self, folder: Path, rank: int) -> None:
        """Load a checkpoint; every rank must call this."""
        load_policy(self, folder, rank)

    def abort_train_step(self) -> None:
        """Drop the open step, see ``RankPolicy.abort_train_step``. Idempotent.

        Under FSDP, ranks that wait for a rank that failed within a pass fail at their timeout, and
        the group can't be used again.
        """
        super().abort_train_step()

    def _zero_gradients(self) -> None:
        self.optimizer.zero_grad()

    def _run(
        self,
        step: OpenStep,
        rows: TensorDict,
        spans: Sequence[TokenSpan],
        sample_ids: Sequence[str] | None,
        *,
        backward: bool,
    ) -> None:
        self.model.train(backward)  # a pass for logprobs may have come between two chunks
        for span in spans:
            ids = None if sample_ids is None else sample_ids[span.start : span.stop]
            loss = self._loss(step, slice_microbatch(rows, span, self._layout), ids)
            if backward:
                loss.backward()  # type: ignore[no-untyped-call]

    def _update(self, count: float) -> tuple[float, float]:
        self._parallel.finish_gradients(self.model, count)
        norm = clip_gradients(self.model, self._config.policy.max_grad_norm)
        rate = float(self.schedule.get_last_lr()[0])
        self.optimizer.step()
        self.schedule.step()
        return norm, rate

    def _loss(self, step: OpenStep, part: TensorDict, sample_ids: Sequence[str] | None) -> Tensor:
        step.flops += self._flops.training(part[INPUT_LENGTHS].tolist())
        logprobs = self._token_logprobs(self.model, part)
        return step.add_microbatch(logprobs, part.to(self._device), sample_ids)

    def _token_logprobs(self, model: Any, part: TensorDict) -> Tensor:
        return token_logprobs(
            model,
            part[INPUT_IDS].to(self._device),
            part[INPUT_LENGTHS].to(self._device),
            temperature=self._config.generation.temperature,
            layout=self._layout,
            pad_multiple=self._config.policy.packing.sequence_length_round,
        )

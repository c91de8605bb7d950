"""The policy of one data-parallel rank: logprobs of its rows, and updates of its weights.

    rows (N, S) ──▶ micro-batches ──▶ logprobs ──▶ loss, normalised by the whole batch
                                                     └─ backward, summed over micro-batches ─┐
                      next global batch ◀── optimizer, schedule ◀── clip ◀── sum over ranks ◀┘

``PolicyModel`` works on tensors in memory; the worker that owns it moves rows and results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from tensordict import TensorDict
from torch import Tensor, nn

from rlconform.contract.fields import (
    ADVANTAGES,
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.grpo.algorithm.loss import policy_gradient_loss
from rlconform.grpo.algorithm.masking import count_valid
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.models import RowLayout, load_model, token_logprobs
from rlconform.grpo.workers.data_parallel import PARALLELISMS, clip_gradients
from rlconform.grpo.workers.microbatches import TokenSpan, plan_microbatches, slice_microbatch
from rlconform.grpo.workers.optimizer import build_optimizer, build_schedule

#: Metrics of one update by name: counts and values of the whole global batch.
Metrics = dict[str, float]


class PolicyModel:
    """One rank's model, its frozen reference, optimizer and schedule."""

    def __init__(self, config: MasterConfig, device: torch.device) -> None:
        self._config = config
        self._device = device
        packed = config.policy.packing.mode == "sequence_packing"
        self._layout: RowLayout = "packed" if packed else "padded"
        self._parallel = PARALLELISMS[config.policy.parallelism]()
        self.model = self._load()
        self.reference = self._load() if config.loss_fn.needs_reference_policy else None
        self.optimizer = build_optimizer(self.model, config.policy.optimizer)
        updates = config.grpo.max_num_steps * (
            config.grpo.rows_per_step // config.train_global_batch_size
        )
        self.schedule = build_schedule(self.optimizer, config.policy.scheduler, updates)

    def _load(self) -> nn.Module:
        """Load the run's initial weights, wrapped for this rank."""
        policy = self._config.policy
        model: nn.Module = load_model(
            policy.model_name, precision=policy.precision, seed=self._config.grpo.seed
        )
        return self._parallel.wrap(model.to(self._device))

    def logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """Compute the logprob of each token under the current weights, see ``token_logprobs``.

        The rows need ``input_ids`` (N, S) and ``input_lengths`` (N,); ``packing`` is the driver's
        plan for them, or empty. The result is (N, S) float32 in CPU memory.
        """
        return self._logprobs(self.model, rows, packing)

    def reference_logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """Compute ``logprobs`` under the initial weights; ``RuntimeError`` without a KL penalty."""
        if self.reference is None:
            raise RuntimeError("without loss_fn.reference_policy_kl_penalty there is no reference")
        return self._logprobs(self.reference, rows, packing)

    @torch.no_grad()
    def _logprobs(self, model: nn.Module, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        model.eval()
        n_rows, width = rows[INPUT_IDS].shape
        result = torch.zeros((n_rows, width), dtype=torch.float32)
        (spans,) = plan_microbatches(
            n_rows, width, packing, 1, self._config.policy.logprob_batch_size
        )
        for span in spans:
            logprobs = self._token_logprobs(model, slice_microbatch(rows, span, self._layout))
            result[span.start : span.stop, : logprobs.shape[1]] = logprobs.cpu()
        return result

    def train(self, rows: TensorDict, packing: Mapping[str, Any], n_batches: int) -> list[Metrics]:
        """Update the weights once per global batch; every rank must call it with its own rows.

        The rows need the columns ``DP_TRAIN_FIELDS``, reference logprobs only with a KL penalty.

        Returns:
            For each update ``loss``, ``grad_norm`` (before clipping), ``lr`` and the metrics of
            ``policy_gradient_loss``, all of the whole global batch and equal on every rank.
        """
        self.model.train()
        n_rows, width = rows[INPUT_IDS].shape
        microbatch_rows = self._config.policy.train_micro_batch_size
        plan = plan_microbatches(n_rows, width, packing, n_batches, microbatch_rows)
        return [self._update(rows, spans) for spans in plan]

    def _update(self, rows: TensorDict, spans: Sequence[TokenSpan]) -> Metrics:
        own = rows[spans[0].start : spans[-1].stop]
        counts = sum_over_ranks(count_valid(own[TOKEN_MASK], own[SAMPLE_MASK]), self._device)
        measured: defaultdict[str, float] = defaultdict(float)
        self.optimizer.zero_grad()
        for span in spans:
            loss, metrics = self._share_of_loss(slice_microbatch(rows, span, self._layout), counts)
            self._parallel.before_backward(self.model, is_last=span is spans[-1])
            (loss * self._parallel.loss_scale).backward()  # type: ignore[no-untyped-call]
            for name, value in {"loss": loss, **metrics}.items():
                measured[name] += value.item()
        self._parallel.finish_gradients(self.model)
        norm = clip_gradients(self.model, self._config.policy.max_grad_norm)
        rate = float(self.schedule.get_last_lr()[0])
        self.optimizer.step()
        self.schedule.step()
        summed = sum_over_ranks(measured.values(), self._device)
        return {**dict(zip(measured, summed, strict=True)), "grad_norm": norm, "lr": rate}

    def _share_of_loss(
        self, part: TensorDict, counts: Sequence[float]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute a micro-batch's share of the loss, normalised by the global batch's counts."""
        tokens, samples = map(int, counts)
        on_device: Any = part.to(self._device)
        return policy_gradient_loss(
            self._token_logprobs(self.model, part),
            on_device[PREV_LOGPROBS],
            on_device.get(REFERENCE_POLICY_LOGPROBS, None),
            on_device[ADVANTAGES],
            on_device[TOKEN_MASK],
            on_device[SAMPLE_MASK],
            self._config.loss_fn,
            valid_tokens=tokens,
            valid_samples=samples,
            engine_logprobs=on_device[GENERATION_LOGPROBS],
        )

    def _token_logprobs(self, model: Any, part: TensorDict) -> Tensor:
        return token_logprobs(
            model,
            part[INPUT_IDS].to(self._device),
            part[INPUT_LENGTHS].to(self._device),
            temperature=self._config.generation.temperature,
            layout=self._layout,
            pad_multiple=self._config.policy.packing.sequence_length_round,
        )


def sum_over_ranks(values: Any, device: torch.device) -> list[float]:
    """Sum each number over all ranks, in float64 and in the order of the ranks."""
    own = torch.tensor(list(values), dtype=torch.float64, device=device)
    by_rank = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(by_rank, own)
    summed: list[float] = sum(by_rank[1:], start=by_rank[0]).tolist()
    return summed

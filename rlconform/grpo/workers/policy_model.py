"""The policy of one data-parallel rank: logprobs of its rows, and updates of its weights.

    rows (N, S) ──▶ micro-batches ──▶ logprobs ──▶ loss, its share of the whole batch's
                                                     └─ backward, summed over micro-batches ─┐
                      next global batch ◀── optimizer, schedule ◀── clip ◀── sum over ranks ◀┘

It knows tensors and the other ranks; where rows come from and results go to is its owner's matter.
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
from rlconform.grpo.algorithm.loss import LossOptions, policy_gradient_loss
from rlconform.grpo.algorithm.masking import count_valid
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.models import RowLayout, load_model, token_logprobs
from rlconform.grpo.workers.data_parallel import PARALLELISMS, clip_gradients
from rlconform.grpo.workers.microbatches import TokenSpan, cut, plan_of
from rlconform.grpo.workers.optimizer import build_optimizer, build_schedule

#: One update's metrics by name: counts, and the whole global batch's values.
Metrics = dict[str, float]


class PolicyModel:
    """A rank's model, its frozen reference, optimizer and schedule.

    Example:
        policy = Policy(config, device)
        rows["prev_logprobs"] = policy.logprobs(rows, packing)
        updates = policy.train(rows, packing)  # on every rank at the same time

    Args:
        config: The run's.
        device: Where to compute.
    """

    def __init__(self, config: MasterConfig, device: torch.device) -> None:
        self._config = config
        self._device = device
        packed = config.policy.packing.mode == "sequence_packing"
        self._layout: RowLayout = "packed" if packed else "padded"
        self._parallel = PARALLELISMS[config.policy.parallelism]()
        self._loss = loss_options(config)
        self.model = self._load()
        self.reference = self._load() if config.loss_fn.needs_reference_policy else None
        self.optimizer = build_optimizer(self.model, config.policy.optimizer)
        updates = config.grpo.max_num_steps * (
            config.grpo.rows_per_step // config.train_global_batch_size
        )
        self.schedule = build_schedule(self.optimizer, config.policy.scheduler, updates)

    def _load(self) -> nn.Module:
        """The weights that the run starts from, as this rank keeps them."""
        policy = self._config.policy
        model: nn.Module = load_model(
            policy.model_name, precision=policy.precision, seed=self._config.grpo.seed
        )
        return self._parallel.wrap(model.to(self._device))

    def logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """Logprobs of each token under the weights as they are.

        Args:
            rows: N rows with ``input_ids`` (N, S) and ``input_lengths`` (N,).
            packing: The driver's plan for these rows; empty without packing.

        Returns:
            (N, S) float32 in CPU memory, see ``models.token_logprobs``.
        """
        return self._logprobs(self.model, rows, packing)

    def reference_logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """As ``logprobs``, under the weights that the run started from.

        Raises:
            RuntimeError: The loss has no KL penalty, and no reference was kept.
        """
        if self.reference is None:
            raise RuntimeError("without loss_fn.reference_policy_kl_penalty there is no reference")
        return self._logprobs(self.reference, rows, packing)

    @torch.no_grad()
    def _logprobs(self, model: nn.Module, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        model.eval()
        n_rows, width = rows[INPUT_IDS].shape
        result = torch.zeros((n_rows, width), dtype=torch.float32)
        (spans,) = plan_of(n_rows, width, packing, 1, self._config.policy.logprob_batch_size)
        for span in spans:
            logprobs = self._run(model, cut(rows, span, self._layout))
            result[span.start : span.stop, : logprobs.shape[1]] = logprobs.cpu()
        return result

    def train(self, rows: TensorDict, packing: Mapping[str, Any], n_batches: int) -> list[Metrics]:
        """One update of the weights for each global batch; every rank with rows of its own.

        Args:
            rows: N rows with the columns ``DP_TRAIN_FIELDS``; the reference's only with a penalty.
            packing: The driver's plan for these rows; empty without packing.
            n_batches: Global batches that they belong to.

        Returns:
            For each update ``loss``, ``grad_norm`` (before clipping), ``lr`` and what
            ``policy_gradient_loss`` measures, of the whole global batch; equal on every rank.
        """
        self.model.train()
        n_rows, width = rows[INPUT_IDS].shape
        of_microbatch = self._config.policy.train_micro_batch_size
        plan = plan_of(n_rows, width, packing, n_batches, of_microbatch)
        return [self._update(rows, spans) for spans in plan]

    def _update(self, rows: TensorDict, spans: Sequence[TokenSpan]) -> Metrics:
        own = rows[spans[0].start : spans[-1].stop]
        counts = sum_over_ranks(count_valid(own[TOKEN_MASK], own[SAMPLE_MASK]), self._device)
        measured: defaultdict[str, float] = defaultdict(float)
        self.optimizer.zero_grad()
        for span in spans:
            loss, metrics = self._share_of_loss(cut(rows, span, self._layout), counts)
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
        """The micro-batch's part of the loss, normalised by the whole global batch's counts."""
        tokens, samples = map(int, counts)
        on_device: Any = part.to(self._device)
        return policy_gradient_loss(
            self._run(self.model, part),
            on_device[PREV_LOGPROBS],
            on_device.get(REFERENCE_POLICY_LOGPROBS, None),
            on_device[ADVANTAGES],
            on_device[TOKEN_MASK],
            on_device[SAMPLE_MASK],
            self._loss,
            valid_tokens=tokens,
            valid_samples=samples,
            engine_logprobs=on_device[GENERATION_LOGPROBS],
        )

    def _run(self, model: Any, part: TensorDict) -> Tensor:
        return token_logprobs(
            model,
            part[INPUT_IDS].to(self._device),
            part[INPUT_LENGTHS].to(self._device),
            temperature=self._config.generation.temperature,
            layout=self._layout,
            pad_multiple=self._config.policy.packing.sequence_length_round,
        )


def loss_options(config: MasterConfig) -> LossOptions:
    """The loss that the run asks for."""
    chosen = config.loss_fn
    return LossOptions(
        ratio_clip_min=chosen.ratio_clip_min,
        ratio_clip_max=chosen.ratio_clip_max,
        ratio_clip_c=chosen.ratio_clip_c,
        reference_policy_kl_penalty=chosen.reference_policy_kl_penalty,
        token_level_loss=chosen.token_level_loss,
        use_importance_sampling_correction=chosen.use_importance_sampling_correction,
        truncated_importance_sampling_ratio=chosen.truncated_importance_sampling_ratio,
    )


def sum_over_ranks(values: Any, device: torch.device) -> list[float]:
    """Each number's sum over all ranks, added in float64 in the order of the ranks."""
    own = torch.tensor(list(values), dtype=torch.float64, device=device)
    of_ranks = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(of_ranks, own)
    summed: list[float] = sum(of_ranks[1:], start=of_ranks[0]).tolist()
    return summed

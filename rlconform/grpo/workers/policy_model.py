"""``PolicyModel``: a data-parallel rank's policy, a model of transformers.

    logprobs      micro-batches ──▶ logprobs
    _run          micro-batches ──▶ logprobs ──▶ loss, a sum ──▶ backward, added up
    _update       sum over ranks ──▶ divide by the step's counts ──▶ clip ──▶ optimizer

``workers.policy`` has the steps of an update, which call these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
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
from rlconform.grpo.workers.policy_replay import PolicyReplay
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
        self.replay = self._new_replay()

    def _load(self) -> nn.Module:
        """Load the run's initial weights, wrapped for this rank."""
        policy = self._config.policy
        model: nn.Module = load_model(
            policy.model_name, precision=policy.precision, seed=self._config.grpo.seed
        )
        if policy.activation_checkpointing:
            causal: Any = model
            causal.activation_checkpointing_enable({"use_reentrant": False})
        return self._parallel.wrap(model.to(self._device))

    def _new_replay(self) -> PolicyReplay | None:
        policy = self._config.policy
        if not policy.router_replay.enabled:
            return None
        return PolicyReplay(
            self.model,
            self._layout,
            policy.packing.sequence_length_round,
            recomputes=policy.activation_checkpointing,
        )

    def logprobs(
        self,
        rows: TensorDict,
        packing: Mapping[str, Any],
        sample_ids: Sequence[str] | None = None,
    ) -> Tensor:
        """Compute the logprobs, see ``RankPolicy.logprobs``."""
        return self._logprobs(self.model, rows, packing, self.replay, sample_ids)

    def reference_logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """Compute ``logprobs`` under the initial weights; ``RuntimeError`` without a KL penalty.

        The reference is a policy of its own, so its routers choose its experts.
        """
        if self.reference is None:
            raise RuntimeError("without loss_fn.reference_policy_kl_penalty there is no reference")
        return self._logprobs(self.reference, rows, packing, None, None)

    @torch.no_grad()
    def _logprobs(
        self,
        model: nn.Module,
        rows: TensorDict,
        packing: Mapping[str, Any],
        replay: PolicyReplay | None,
        sample_ids: Sequence[str] | None,
    ) -> Tensor:
        model.eval()
        if replay is not None:
            replay.check(rows)
        result = torch.zeros(rows[INPUT_IDS].shape, dtype=torch.float32)
        size = self._config.policy.logprob_batch_size
        (spans,) = self._plan(rows, packing, 1, size, "logprob")
        for span in spans:
            part = slice_microbatch(rows, span, self._layout)
            with _replaying(replay, part, _ids_of(sample_ids, span)):
                logprobs = self._token_logprobs(model, part)
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
        if self.replay is not None:
            self.replay.check(rows)
        self.model.train(backward)  # a pass for logprobs may have come between two chunks
        for span in spans:
            part, ids = slice_microbatch(rows, span, self._layout), _ids_of(sample_ids, span)
            with _replaying(self.replay, part, ids, backward=backward):
                loss = self._loss(step, part, ids if backward else None)
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


def _ids_of(sample_ids: Sequence[str] | None, span: TokenSpan) -> Sequence[str] | None:
    return None if sample_ids is None else sample_ids[span.start : span.stop]


def _replaying(
    replay: PolicyReplay | None,
    part: TensorDict,
    sample_ids: Sequence[str] | None,
    *,
    backward: bool = False,
) -> AbstractContextManager[None]:
    """Replay the experts of a micro-batch in the block, if the run does so."""
    if replay is None:
        return nullcontext()
    return replay.microbatch(part, sample_ids, backward=backward)

"""The policy of one data-parallel rank: logprobs of its rows, and updates of its weights.

    begin_train_step
    train_microbatches   once per chunk of rows (N, S):
                         micro-batches ──▶ logprobs ──▶ loss, a sum ──▶ backward, added up
    finish_train_step    sum over ranks ──▶ divide by the step's counts ──▶ clip ──▶ optimizer
    train                the same three calls for each global batch, as one chunk

``PolicyModel`` works on tensors in memory; the worker that owns it moves rows and results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS
from rlconform.grpo.algorithm.normalisation import loss_count, means_of
from rlconform.grpo.config import ClippedPGLossConfig, MasterConfig
from rlconform.grpo.models import RowLayout, load_model, token_logprobs
from rlconform.grpo.models.load import DTYPES
from rlconform.grpo.workers.data_parallel import PARALLELISMS, clip_gradients, sum_over_ranks
from rlconform.grpo.workers.flops import ModelFlops, peak_tflops
from rlconform.grpo.workers.microbatches import TokenSpan, plan_microbatches, slice_microbatch
from rlconform.grpo.workers.optimizer import build_optimizer, build_schedule
from rlconform.grpo.workers.policy_replay import PolicyReplay
from rlconform.grpo.workers.train_step import OpenStep, TrainStepError
from rlconform.grpo.workers.witness import Witness

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
        self._flops = ModelFlops.of(self.model)
        #: Replays the experts that generation chose; None without ``policy.router_replay``.
        self.replay = self._new_replay()
        self._step: OpenStep | None = None
        #: Passes with a gradient by sample id, see ``Witness.passes``, in the last ``train`` or the
        #: last step that was finished; empty without ``policy.witness``.
        self.witnessed: Counter[str] = Counter()

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
        """Compute the logprob of each token under the current weights, see ``token_logprobs``.

        The rows need ``input_ids`` (N, S) and ``input_lengths`` (N,), and with router replay
        ``routed_experts`` (N, S, L, K); ``packing`` is the driver's plan for them, or empty;
        ``sample_ids`` name them in a trace. The result is (N, S) float32 in CPU memory.
        """
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
        (spans,) = self._plan(rows, packing, 1, self._config.policy.logprob_batch_size)
        for span in spans:
            part = slice_microbatch(rows, span, self._layout)
            with _replaying(replay, part, _ids_of(sample_ids, span)):
                logprobs = self._token_logprobs(model, part)
            result[span.start : span.stop, : logprobs.shape[1]] = logprobs.cpu()
        return result

    def train(
        self,
        rows: TensorDict,
        packing: Mapping[str, Any],
        n_batches: int,
        loss_fn: ClippedPGLossConfig | None = None,
        mbs: int | None = None,
        sample_ids: Sequence[str] | None = None,
    ) -> list[Metrics]:
        """Update the weights once per global batch; every rank must call it with its own rows.

        Arguments and errors are those of ``begin_train_step`` and ``train_microbatches``. A global
        batch that fails leaves no step open.

        Returns:
            The metrics of each update, see ``finish_train_step``.
        """
        updates, witnessed = [], Counter[str]()
        for spans in self._plan(rows, packing, n_batches, self._microbatch_rows(mbs)):
            self.begin_train_step(loss_fn, mbs)
            try:
                self._accumulate(rows, spans, sample_ids)
                updates.append(self.finish_train_step())
            finally:
                self.abort_train_step()
            witnessed.update(self.witnessed)
        self.witnessed = witnessed
        return updates

    def begin_train_step(
        self, loss_fn: ClippedPGLossConfig | None = None, mbs: int | None = None
    ) -> None:
        """Open an update whose rows arrive in chunks.

        Args:
            loss_fn: Options of the loss, by default the configured ones.
            mbs: Rows per micro-batch without packing, ``policy.train_micro_batch_size`` by default.

        Raises:
            TrainStepError: A step is open.
            ValueError: ``mbs`` together with packing.
        """
        if self._step is not None:
            raise TrainStepError("a train step is open: finish or abort it before the next one")
        self._step = self._new_step(loss_fn, mbs)
        self.optimizer.zero_grad()

    def train_microbatches(
        self,
        rows: TensorDict,
        packing: Mapping[str, Any],
        sample_ids: Sequence[str] | None = None,
    ) -> None:
        """Add the gradients of a chunk of rows; every rank must call it with its own rows.

        The rows need the columns ``DP_TRAIN_FIELDS``, reference logprobs only with a KL penalty.
        ``packing`` is the driver's plan for them, or empty; ``sample_ids`` name them for the
        witness. All ranks must have the same number of micro-batches.

        Raises:
            TrainStepError: No step is open.
            ValueError: The plan is for other rows, the witness lacks sample ids, or
                ``policy_gradient_loss`` raises it.
        """
        step = self._opened()
        (spans,) = self._plan(rows, packing, 1, step.microbatch_rows)
        self._accumulate(rows, spans, sample_ids)

    def finish_train_step(self) -> Metrics:
        """Update the weights with the gradients of all chunks of all ranks, and end the step.

        Without any trained token the gradients are 0, so that only momentum and weight decay
        change the weights.

        Returns:
            ``loss``, ``grad_norm`` (before clipping), ``lr``, the metrics of
            ``policy_gradient_loss``, and ``total_flops`` (of the update, over all ranks),
            ``num_ranks`` and ``theoretical_tflops`` (of all ranks' GPUs, see ``workers.flops``);
            all are of the whole update and equal on every rank.

        Raises:
            TrainStepError: No step is open, there was no chunk, or a chunk failed on any rank; the
                step stays open, to be aborted.
        """
        step = self._opened()
        step.check_chunks(self._device)
        sums = step.sums(self._device)
        metrics = self._metrics(step, sums)
        self._parallel.finish_gradients(self.model, loss_count(sums, step.loss_fn))
        norm = clip_gradients(self.model, self._config.policy.max_grad_norm)
        rate = float(self.schedule.get_last_lr()[0])
        self.optimizer.step()
        self.schedule.step()
        self.witnessed = step.witness.passes() if step.witness else Counter()
        self._step = None
        return {**metrics, "grad_norm": norm, "lr": rate}

    def abort_train_step(self) -> None:
        """Drop the open step; weights, optimizer and schedule are as before it. Idempotent.

        Under FSDP, ranks that wait for a rank that failed within a pass fail at their timeout, and
        the group can't be used again.
        """
        if self._step is not None:
            self._step = None
            self.optimizer.zero_grad()

    @torch.no_grad()
    def evaluate(
        self,
        rows: TensorDict,
        packing: Mapping[str, Any],
        n_batches: int,
        loss_fn: ClippedPGLossConfig | None = None,
        mbs: int | None = None,
        sample_ids: Sequence[str] | None = None,
    ) -> list[Metrics]:
        """Compute the metrics of each global batch without an update, so no ``grad_norm``, ``lr``.

        Arguments are those of ``train``; an open step is left as it is. ``total_flops`` is that of
        forward passes.
        """
        self.model.eval()
        if self.replay is not None:
            self.replay.check(rows)
        evaluated = []
        for spans in self._plan(rows, packing, n_batches, self._microbatch_rows(mbs)):
            step = self._new_step(loss_fn, mbs)
            for span in spans:
                part = slice_microbatch(rows, span, self._layout)
                with _replaying(self.replay, part, _ids_of(sample_ids, span)):
                    self._loss(step, part, None)
            metrics = self._metrics(step, step.sums(self._device))
            metrics["total_flops"] /= 3  # the rest is the backward pass, see ``workers.flops``
            evaluated.append(metrics)
        return evaluated

    def _new_step(self, loss_fn: ClippedPGLossConfig | None, mbs: int | None) -> OpenStep:
        witness = Witness() if self._config.policy.witness else None
        return OpenStep(loss_fn or self._config.loss_fn, self._microbatch_rows(mbs), witness)

    def _plan(
        self, rows: TensorDict, packing: Mapping[str, Any], n_batches: int, microbatch_rows: int
    ) -> list[list[TokenSpan]]:
        n_rows, width = rows[INPUT_IDS].shape
        return plan_microbatches(n_rows, width, packing, n_batches, microbatch_rows)

    def _microbatch_rows(self, mbs: int | None) -> int:
        packing = self._config.policy.packing.mode
        if mbs is not None and packing != "none":
            raise ValueError(f"mbs={mbs} has no meaning with policy.packing.mode={packing}")
        return mbs or self._config.policy.train_micro_batch_size

    def _opened(self) -> OpenStep:
        if self._step is None:
            raise TrainStepError("no train step is open: call begin_train_step first")
        return self._step

    def _accumulate(
        self, rows: TensorDict, spans: Sequence[TokenSpan], sample_ids: Sequence[str] | None
    ) -> None:
        step = self._opened()
        if step.witness is not None and sample_ids is None:
            raise ValueError("policy.witness needs sample ids, which only rows in a plane have")
        step.chunks_begun += 1
        if self.replay is not None:
            self.replay.check(rows)
        self.model.train()  # a pass for logprobs may have come between two chunks
        for span in spans:
            part, ids = slice_microbatch(rows, span, self._layout), _ids_of(sample_ids, span)
            with _replaying(self.replay, part, ids, backward=True):
                loss = self._loss(step, part, ids)
                loss.backward()  # type: ignore[no-untyped-call]
        step.chunks_done += 1

    def _loss(self, step: OpenStep, part: TensorDict, sample_ids: Sequence[str] | None) -> Tensor:
        step.flops += self._flops.training(part[INPUT_LENGTHS].tolist())
        logprobs = self._token_logprobs(self.model, part)
        return step.add_microbatch(logprobs, part.to(self._device), sample_ids)

    def _metrics(self, step: OpenStep, sums: Mapping[str, float]) -> Metrics:
        peak = peak_tflops(self._device, DTYPES[self._config.policy.precision])
        machine = sum_over_ranks([step.flops, 1, peak], self._device)
        names = ("total_flops", "num_ranks", "theoretical_tflops")
        return means_of(sums, step.loss_fn) | dict(zip(names, machine, strict=True))

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

"""``RankPolicy``: one rank's policy, whatever runs its model; updates whose rows arrive in chunks.

    begin_train_step
    train_microbatches   once per chunk of rows (N, S):
                         micro-batches ──▶ logprobs ──▶ loss, a sum ──▶ backward, added up
    finish_train_step    sum over ranks ──▶ divide by the step's counts ──▶ clip ──▶ optimizer
    train                the same three calls for each global batch, as one chunk

A ``RankPolicy`` works on tensors in memory; the worker that owns it moves rows and results. The
model is one of transformers (``policy_model``) or of Megatron-core (``workers.megatron``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract.fields import INPUT_IDS
from rlconform.grpo.algorithm.normalisation import loss_count, means_of
from rlconform.grpo.config import ClippedPGLossConfig, MasterConfig, Stage
from rlconform.grpo.models import RowLayout
from rlconform.grpo.models.load import DTYPES
from rlconform.grpo.workers.data_parallel import sum_over_ranks
from rlconform.grpo.workers.flops import peak_tflops
from rlconform.grpo.workers.microbatches import TokenSpan, plan_microbatches
from rlconform.grpo.workers.policy_replay import PolicyReplay
from rlconform.grpo.workers.train_step import OpenStep, TrainStepError
from rlconform.grpo.workers.witness import Witness
from rlconform.plane import ModelRanks, ReplicaGroup

#: Metrics of one update by name: counts and values of the whole global batch.
Metrics = dict[str, float]

T = TypeVar("T")


class RankPolicy(ABC):
    """What all policies share: the steps of an update, its metrics, and their errors."""

    #: This rank's place in its replica of the model.
    model_ranks = ModelRanks(tp=0, cp=0, pp=0)
    #: The group in which one rank reads the replica's rows; None where each rank reads for itself.
    replica: ReplicaGroup | None = None
    #: Replays the experts that generation chose; None without ``policy.router_replay``.
    replay: PolicyReplay | None = None

    def __init__(self, config: MasterConfig, device: torch.device) -> None:
        self._config = config
        self._device = device
        packed = config.policy.packing.mode == "sequence_packing"
        self._layout: RowLayout = "packed" if packed else "padded"
        self._step: OpenStep | None = None
        #: Passes with a gradient by sample id, see ``Witness.passes``, in the last ``train`` or the
        #: last step that was finished; empty without ``policy.witness``.
        self.witnessed: Counter[str] = Counter()

    @property
    def _updates(self) -> int:
        """Number of updates of the whole run."""
        grpo = self._config.grpo
        per_step = grpo.rows_per_step // self._config.train_global_batch_size
        return grpo.max_num_steps * per_step

    @abstractmethod
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

    @abstractmethod
    def reference_logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """Compute ``logprobs`` under the initial weights; ``RuntimeError`` without a KL penalty."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """Return all weights by name on rank 0, {} on other ranks; every rank must call this."""

    @abstractmethod
    def save(self, folder: Path, rank: int) -> None:
        """Write this rank's part of a checkpoint; every rank must call this."""

    @abstractmethod
    def load(self, folder: Path, rank: int) -> None:
        """Load a checkpoint; every rank must call this."""

    def together(self, action: Callable[[], T]) -> T:
        """Return what ``action`` returns on this rank.

        Where ranks wait for each other within a pass, it raises on all of them if it raises on one.
        """
        return action()

    @abstractmethod
    def _zero_gradients(self) -> None:
        """Set the gradients to zero."""

    @abstractmethod
    def _run(
        self,
        step: OpenStep,
        rows: TensorDict,
        spans: Sequence[TokenSpan],
        sample_ids: Sequence[str] | None,
        *,
        backward: bool,
    ) -> None:
        """Run the micro-batches: add their metrics to the step and, ``backward``, gradients."""

    @abstractmethod
    def _update(self, count: float) -> tuple[float, float]:
        """Divide the gradients, summed over ranks, by ``count``, clip them, update the weights.

        Returns the norm before clipping and the learning rate.
        """

    def _sums(self, step: OpenStep) -> dict[str, float]:
        """Return the step's metrics, summed over all ranks; collective."""
        return step.sums(self._device)

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
        for spans in self._plan(rows, packing, n_batches, self._microbatch_rows(mbs), "train"):
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
        self._zero_gradients()

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
        (spans,) = self._plan(rows, packing, 1, step.microbatch_rows, "train")
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
        sums = self._sums(step)
        metrics = self._metrics(step, sums)
        norm, rate = self._update(loss_count(sums, step.loss_fn))
        self.witnessed = step.witness.passes() if step.witness else Counter()
        self._step = None
        return {**metrics, "grad_norm": norm, "lr": rate}

    def abort_train_step(self) -> None:
        """Drop the open step; weights, optimizer and schedule are as before it. Idempotent."""
        if self._step is not None:
            self._step = None
            self._zero_gradients()

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
        evaluated = []
        for spans in self._plan(rows, packing, n_batches, self._microbatch_rows(mbs), "train"):
            step = self._new_step(loss_fn, mbs)
            self._run(step, rows, spans, sample_ids, backward=False)
            metrics = self._metrics(step, self._sums(step))
            metrics["total_flops"] /= 3  # the rest is the backward pass, see ``workers.flops``
            evaluated.append(metrics)
        return evaluated

    def _new_step(self, loss_fn: ClippedPGLossConfig | None, mbs: int | None) -> OpenStep:
        witness = Witness() if self._config.policy.witness else None
        return OpenStep(loss_fn or self._config.loss_fn, self._microbatch_rows(mbs), witness)

    def _plan(
        self,
        rows: TensorDict,
        packing: Mapping[str, Any],
        n_batches: int,
        microbatch_rows: int,
        stage: Stage,  # noqa: ARG002 - for policies whose ranks compare their plans
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
        self._run(step, rows, spans, sample_ids, backward=True)
        step.chunks_done += 1

    def _metrics(self, step: OpenStep, sums: Mapping[str, float]) -> Metrics:
        peak = peak_tflops(self._device, DTYPES[self._config.policy.precision])
        machine = sum_over_ranks([step.flops, 1, peak], self._device)
        names = ("total_flops", "num_ranks", "theoretical_tflops")
        return means_of(sums, step.loss_fn) | dict(zip(names, machine, strict=True))

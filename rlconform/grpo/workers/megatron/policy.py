"""``MegatronPolicy``: a rank's policy, a part of a model that Megatron-core runs.

    _plan       the driver's micro-batches; the ranks compare them before the first pass
    logprobs    passes ──▶ last pipeline stage ── broadcast ──▶ the replica's other stages
    _run        passes ──▶ loss on the last stage ──▶ backward through all stages
    _update     finalize_model_grads, optimizer

Every call is collective. Ranks of a replica get the same rows; ``workers.policy`` has the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from tensordict import TensorDict
from torch import Tensor
from transformers import AutoModelForCausalLM

from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS
from rlconform.grpo.config import MasterConfig, Stage
from rlconform.grpo.models import load_model_config
from rlconform.grpo.models.load import DTYPES
from rlconform.grpo.workers.flops import ModelFlops
from rlconform.grpo.workers.megatron.checkpoint import load_rank, save_rank
from rlconform.grpo.workers.megatron.model import (
    HAS_TRANSFORMER_ENGINE,
    build_model,
    check_engine,
    transformer_config,
)
from rlconform.grpo.workers.megatron.optimizer import (
    build_megatron_optimizer,
    update_weights,
    wrap_for_training,
    zero_gradients,
)
from rlconform.grpo.workers.megatron.parallel import join_groups
from rlconform.grpo.workers.megatron.passes import (
    AroundForward,
    MegatronPasses,
    Microbatch,
    nothing_around,
)
from rlconform.grpo.workers.megatron.plan_check import RankPlan, plan_difference
from rlconform.grpo.workers.megatron.replay import MegatronReplay, prepare_replay
from rlconform.grpo.workers.megatron.weight_map import ModelSizes, WeightMap
from rlconform.grpo.workers.megatron.weights import gather_weights, load_weights, open_weights
from rlconform.grpo.workers.microbatches import TokenSpan, plan_misfit
from rlconform.grpo.workers.optimizer import learning_rate_factor
from rlconform.grpo.workers.policy import RankPolicy
from rlconform.grpo.workers.rank_layout import RankLayout
from rlconform.grpo.workers.train_step import OpenStep, PlanMismatch

T = TypeVar("T")


class MegatronPolicy(RankPolicy):
    """One rank's part of the model and of its frozen reference, its optimizer and schedule.

    ``ConfigError`` if Megatron would compute the model otherwise than transformers.
    """

    def __init__(self, config: MasterConfig, device: torch.device, layout: RankLayout) -> None:
        super().__init__(config, device)
        policy = config.policy
        hf = load_model_config(policy.model_name)
        self._dtype = DTYPES[policy.precision]
        megatron, replays = policy.megatron_cfg, policy.router_replay.enabled
        check_engine(megatron, has_engine=HAS_TRANSFORMER_ENGINE)
        sizes = transformer_config(hf, megatron, self._dtype, device, replay=replays)
        route_format = prepare_replay(sizes, megatron) if replays else None
        self._groups = join_groups(layout, megatron, config.cluster.timeout_s, config.grpo.seed)
        self.model_ranks = self._groups.model_ranks
        self.replica = self._groups.replica(megatron)
        model = build_model(hf, sizes).to(device)
        self._weight_map = WeightMap(
            ModelSizes.of(hf),
            [layer.layer_number - 1 for layer in model.decoder.layers],
            layout.tp,
            self.model_ranks.tp,
            megatron.expert_model_parallel_size,
            parallel_state.get_expert_model_parallel_rank(),
        )
        source = open_weights(policy.model_name, config.grpo.seed)
        load_weights(model, source, self._weight_map)
        self.model = wrap_for_training(model, policy)
        self.optimizer = build_megatron_optimizer(self.model, policy)
        self.reference: Any = None
        if config.loss_fn.needs_reference_policy:
            frozen = transformer_config(hf, megatron, self._dtype, device)  # it never replays
            self.reference = build_model(hf, frozen).to(device)
            load_weights(self.reference, source, self._weight_map)
        self.replay: MegatronReplay | None = None
        if route_format is not None:
            self.replay = MegatronReplay(
                model, route_format, self._weight_map.layers, self._layout, device
            )
        self.passes = MegatronPasses(config, device, hf.get_text_config().vocab_size)
        self._factor = learning_rate_factor(policy.scheduler, self._updates)
        self._updates_done = 0
        with torch.device("meta"):
            whole = AutoModelForCausalLM.from_config(hf)  # type: ignore[no-untyped-call]
            self._flops = ModelFlops.of(whole)

    def logprobs(
        self,
        rows: TensorDict,
        packing: Mapping[str, Any],
        sample_ids: Sequence[str] | None = None,
    ) -> Tensor:
        """Compute the logprobs, see ``RankPolicy.logprobs``; equal on a replica's ranks."""
        return self._logprobs(self.model, rows, packing, self.replay, sample_ids)

    def reference_logprobs(self, rows: TensorDict, packing: Mapping[str, Any]) -> Tensor:
        """Compute ``logprobs`` under the initial weights; ``RuntimeError`` without a KL penalty."""
        if self.reference is None:
            raise RuntimeError("without loss_fn.reference_policy_kl_penalty there is no reference")
        return self._logprobs(self.reference, rows, packing, None, None)

    @torch.no_grad()
    def _logprobs(
        self,
        model: Any,
        rows: TensorDict,
        packing: Mapping[str, Any],
        replay: MegatronReplay | None,
        sample_ids: Sequence[str] | None,
    ) -> Tensor:
        model.eval()
        size = self._config.policy.logprob_batch_size
        (spans,) = self._plan(rows, packing, 1, size, "logprob")
        result = torch.zeros(rows[INPUT_IDS].shape, dtype=torch.float32, device=self._device)
        with self._replaying(replay, rows, sample_ids) as around:
            collected = self.passes.logprobs(model, rows, spans, around)
        if parallel_state.is_pipeline_last_stage():
            for span, logprobs in zip(spans, collected, strict=True):
                result[span.start : span.stop, : logprobs.shape[1]] = logprobs
        if self._groups.layout.pp > 1:
            last = parallel_state.get_pipeline_model_parallel_last_rank()
            dist.broadcast(result, last, group=parallel_state.get_pipeline_model_parallel_group())
        return result.cpu()

    def weights(self) -> dict[str, Tensor]:
        """Gather all weights by name on rank 0, see ``RankPolicy.weights``."""
        module = self.model.module
        return gather_weights(module, self._weight_map, self._dtype, self._groups.control)

    def save(self, folder: Path, rank: int) -> None:
        """Write this rank's part of a checkpoint."""
        layout = self._groups.layout
        save_rank(folder, rank, layout, self.model, self.optimizer, self._updates_done)

    def load(self, folder: Path, rank: int) -> None:
        """Load a checkpoint; ``ConfigError`` on all ranks if it is of another layout."""
        layout = self._groups.layout
        self._updates_done = self.together(
            lambda: load_rank(folder, rank, layout, self.model, self.optimizer)
        )

    def together(self, action: Callable[[], T]) -> T:
        """Return the action's value, or raise on all ranks if it raised on one."""
        return self._groups.agree(action)

    def _plan(
        self,
        rows: TensorDict,
        packing: Mapping[str, Any],
        n_batches: int,
        microbatch_rows: int,
        stage: Stage,
    ) -> list[list[TokenSpan]]:
        """Read the driver's plan.

        Raises:
            PlanMismatch: The ranks' plans don't fit together, on all ranks; or a plan doesn't fit
                this rank's rows, where the other ranks raise ``RankFailed``.
        """
        shared = self._config.policy.megatron_cfg.expert_model_parallel_size > 1

        def describe(plan: list[list[TokenSpan]]) -> RankPlan:
            shapes = [[self.passes.shape(span, stage) for span in spans] for spans in plan]
            return RankPlan(self._groups.rank, self._groups.dp_rank, shapes)

        def check(plans: Sequence[RankPlan]) -> None:
            counts = shared or stage == "train"  # passes without experts elsewhere need no other
            if difference := plan_difference(plans, counts=counts, widths=shared):
                raise PlanMismatch(difference)

        def make() -> list[list[TokenSpan]]:
            plan = super(MegatronPolicy, self)._plan(
                rows, packing, n_batches, microbatch_rows, stage
            )
            multiple = self._config.policy.packing.sequence_length_round
            if misfit := plan_misfit(rows[INPUT_LENGTHS].tolist(), plan, self._layout, multiple):
                raise PlanMismatch(misfit)
            return plan

        return self._groups.agree(make, describe, check)

    def _zero_gradients(self) -> None:
        zero_gradients(self.model, self.optimizer)

    def _run(
        self,
        step: OpenStep,
        rows: TensorDict,
        spans: Sequence[TokenSpan],
        sample_ids: Sequence[str] | None,
        *,
        backward: bool,
    ) -> None:
        def loss(part: Microbatch, logprobs: Tensor) -> Tensor:
            ids = None
            if self._groups.counts:  # the other ranks of the last stage compute the same
                step.flops += self._flops.training(part.rows[INPUT_LENGTHS].tolist())
                ids = None if sample_ids is None else sample_ids[part.span.start : part.span.stop]
            return step.add_microbatch(logprobs, part.rows.to(self._device), ids)

        self.model.train(backward)
        with self._replaying(self.replay, rows, sample_ids) as around:
            self.passes.losses(self.model, rows, spans, loss, around, backward=backward)

    def _replaying(
        self, replay: MegatronReplay | None, rows: TensorDict, sample_ids: Sequence[str] | None
    ) -> AbstractContextManager[AroundForward]:
        """Return what the passes in its block call; all ranks raise if one can't replay its rows.

        The block runs all micro-batches of these rows, forward and backward.
        """
        if replay is None:
            return nullcontext(nothing_around)
        self.together(lambda: replay.check(rows))
        return replay.microbatches(sample_ids)

    def _update(self, count: float) -> tuple[float, float]:
        rate = self._config.policy.optimizer.lr * self._factor(self._updates_done)
        norm = update_weights(self.model, self.optimizer, count, rate)
        self._updates_done += 1
        return norm, rate

    def _sums(self, step: OpenStep) -> dict[str, float]:
        """Sum the metrics of the replicas, each of which one rank reports, in their order."""
        reports = self._groups.gather(step.own_sums if self._groups.counts else None)
        counted = [report for report in reports if report is not None]
        return {name: sum(report[name] for report in counted) for name in counted[0]}

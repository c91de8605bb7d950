"""A training step with router replay, in one process: real workers and an in-memory plane.

    rollout worker ── rows with canary routes ──▶ plane
    dp 0: tp 0 ── fetch ──▶ plane    dp 1: the same       each rank: prev_logprobs, then one chunk
          └─ the same message ──▶ tp 1                    of a train step, without the update

The ranks run one after the other, so nobody waits; a tensor-parallel rank gets what its leader has
sent. ``mutants.router_replay`` puts a class with a defect in the place of one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import (
    ADVANTAGES,
    GLOBAL_FORWARD_PAD_SEQLEN,
    INPUT_IDS,
    PREV_LOGPROBS,
    ROUTED_EXPERTS,
)
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.generation import (
    OnFinished,
    Prefix,
    Prompts,
    Responses,
    Sampling,
    ShouldStop,
)
from rlconform.grpo.generation.transformers_engine import TransformersEngine
from rlconform.grpo.models import load_model
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import rollout_fields
from rlconform.grpo.router_replay.canaries import canary_routes
from rlconform.grpo.tasks import build_task
from rlconform.grpo.trainers.driver_step import set_padded_width, train_fields
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.plane import ModelRanks, ReplicaGroup, read_columns, shard_meta_for_dp, write_columns
from rlconform.wire.serialization import TensorMessage

_PARTITION = "train"
_DP = 2
_TP = 2
_CONFIG = (
    "data.task=guess",
    "grpo.max_rollout_turns=3",
    "generation.max_new_tokens=8",
    "grpo.num_prompts_per_step=4",
    "grpo.num_generations_per_prompt=4",
    "loss_fn.reference_policy_kl_penalty=0",
    "policy.max_total_sequence_length=40",
    "policy.router_replay.enabled=true",
    "policy.train_micro_batch_size=3",
    "policy.logprob_batch_size=3",
    "policy.packing.train_mb_tokens=40",
    "policy.packing.logprob_mb_tokens=40",
)


@dataclass(frozen=True)
class ReplayScenario:
    """Options of a step, in the form of command-line overrides."""

    options: tuple[str, ...] = ()

    def run(self, folder: Path) -> None:
        """Run the step, and write its trace into a folder."""
        run_replay_step(folder, load_config("tiny_moe_copy", [*_CONFIG, *self.options]))


#: Right steps: padded, packed, and with recomputed layers.
REPLAY_SCENARIOS = {
    "replay padded": ReplayScenario(),
    "replay packed": ReplayScenario(("policy.packing.mode=sequence_packing",)),
    "replay recomputed": ReplayScenario(("policy.activation_checkpointing=true",)),
}


class CanaryEngine(TransformersEngine):
    """Generates with the model, and says that it chose canary routes."""

    def __init__(self, config: MasterConfig) -> None:
        model = load_model(config.policy.model_name, seed=config.grpo.seed)
        super().__init__(model, record_routes=True)
        self._dealt = 0

    def _generate(
        self,
        prompts: Prompts,
        seeds: Sequence[int],
        sampling: Sampling,
        prefixes: Sequence[Prefix],
        should_stop: ShouldStop,
        on_finished: OnFinished,
    ) -> Responses:
        responses = super()._generate(
            prompts, seeds, sampling, prefixes, should_stop, lambda *_: None
        )
        responses = replace(responses, routes=list(map(self._canaries, responses.routes or [])))
        responses.report_finished(on_finished)
        return responses

    def _canaries(self, routes: torch.Tensor | None) -> torch.Tensor | None:
        if routes is None or self.route_format is None:
            return None
        first, self._dealt = self._dealt, self._dealt + len(routes)
        return canary_routes(len(routes), self.route_format, first)


class LocalReplica(ReplicaGroup):
    """A replica group of ranks that run one after the other in this process, the leader first."""

    def __init__(self, rank: int, messages: list[TensorMessage]) -> None:
        self.rank, self.size, self.timeout_s = rank, _TP, 1.0
        self._messages = messages

    def share(self, read: Callable[[], Any], use: Callable[[Any], Any]) -> Any:
        """Read on the leader, and use what it has sent on the others."""
        if self.is_src:
            value = read()
            self._messages.append(TensorMessage.of(value))
            return use(value)
        sent = self._messages.pop(0)
        return use(TensorMessage(sent.structure, [each.clone() for each in sent.tensors]).value())


def run_replay_step(folder: Path, config: MasterConfig) -> None:
    """Generate rows, compute their logprobs and the gradients of a chunk; write the trace."""
    client = MemoryClient({})
    try:
        meta = _collect(client, config, folder)
        replicas = [_replica(client, config, folder, dp) for dp in range(_DP)]
        for shard, ranks in zip(_shards(meta, config, "logprob"), replicas, strict=True):
            for rank in ranks:
                rank.logprobs_from_meta(shard)
        prev = read_columns(client, meta, [PREV_LOGPROBS])[PREV_LOGPROBS]
        advantages = torch.ones_like(prev)
        write_columns(client, meta, {ADVANTAGES: advantages})
        for shard, ranks in zip(_shards(meta, config, "train"), replicas, strict=True):
            for rank in ranks:
                rank.begin_train_step()
                rank.train_microbatches_from_meta(shard, train_fields(config))
                rank.abort_train_step()
        for ranks in replicas:
            for rank in ranks:
                rank.detach()
    finally:
        client.close()


def _collect(client: MemoryClient, config: MasterConfig, folder: Path) -> KVBatchMeta:
    worker = PlaneRolloutWorker("cpu")
    worker.build(config)
    worker.engine.close()
    worker._engine = CanaryEngine(config)
    worker.attach(lambda: client)
    worker.open_route_trace(folder, "run")
    client.register_partition(
        partition_id=_PARTITION,
        fields=list(dict.fromkeys([*rollout_fields(config), *train_fields(config)])),
        num_samples=config.grpo.rows_per_step,
        consumer_tasks=["train"],
    )
    task = build_task(config.data, config.grpo.seed, "train")
    problems = [task.problem(number) for number in range(config.grpo.num_prompts_per_step)]
    meta, _ = worker.collect_to_plane(problems, "train", _PARTITION)
    worker.close()
    return set_padded_width(meta, config)


def _replica(
    client: MemoryClient, config: MasterConfig, folder: Path, dp: int
) -> list[PlanePolicyWorker]:
    """Start the ranks of a replica, the leader first."""
    messages: list[TensorMessage] = []
    ranks = []
    for tp in range(_TP):
        worker = PlanePolicyWorker(dp, _DP, "cpu")
        worker.build(config)
        replay = worker.policy.replay
        assert replay is not None  # the configuration has it
        worker.attach_plane(
            client,
            ranks=ModelRanks(tp=tp, cp=0, pp=0),
            replica=LocalReplica(tp, messages),
            pad_values={INPUT_IDS: 0, ROUTED_EXPERTS: replay.replayer.format.missing},
        )
        worker.open_route_trace(folder, "run")
        ranks.append(worker)
    return ranks


def _shards(meta: KVBatchMeta, config: MasterConfig, stage: Any) -> list[KVBatchMeta]:
    packing = config.policy.packing
    assert GLOBAL_FORWARD_PAD_SEQLEN in meta.extra_info
    shards, _ = shard_meta_for_dp(
        meta,
        _DP,
        sequence_packing=packing.sequence_packing(stage),
        dynamic_batching=packing.dynamic_batching(stage),
    )
    return shards

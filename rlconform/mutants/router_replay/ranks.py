"""Policy workers and replica groups that break what the ranks of a replica owe each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rlconform.contract import BatchMeta, KVBatchMeta
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, ROUTED_EXPERTS
from rlconform.grpo.simulation.replay_step import LocalReplica
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.mutants.router_replay.defect import replay_defect
from rlconform.plane import ModelRanks
from rlconform.plane.shard_request import ShardRequest
from rlconform.plane.sharding import SequencePacking, plan_shards
from rlconform.plane.worker_mixin import WorkerBatch

_PACKED = "policy.packing.mode=sequence_packing"


@replay_defect("expected prev_logprobs to be written once", seen="NeMo-RL (NR-23)")
class EveryRankWrites(PlanePolicyWorker):
    """Writes results back on every rank of a replica, although they may be of another part."""

    def write_back(self, meta: BatchMeta, field: str, values: Any) -> BatchMeta | None:
        own = self._attached()
        self._plane = own._replace(ranks=ModelRanks(tp=0, cp=0, pp=0))
        try:
            return super().write_back(meta, field, values)
        finally:
            self._plane = own


@replay_defect("expected prev_logprobs to be written once", seen="NeMo-RL (NR-23)")
class LastRankWrites(PlanePolicyWorker):
    """Writes back on the last tensor-parallel rank in place of the first."""

    def write_back(self, meta: BatchMeta, field: str, values: Any) -> BatchMeta | None:
        own = self._attached()
        self._plane = own._replace(ranks=ModelRanks(tp=1 - own.ranks.tp, cp=0, pp=0))
        try:
            return super().write_back(meta, field, values)
        finally:
            self._plane = own


@replay_defect("tp=1: expected the tokens", seen="verl#7106")
class BroadcastInAnotherRowOrder(LocalReplica):
    """Gives the other ranks the leader's rows in reverse, all columns alike."""

    def share(self, read: Callable[[], Any], use: Callable[[Any], Any]) -> Any:
        if self.is_src:
            return super().share(read, use)

        def reverse(received: tuple[ShardRequest, Any]) -> Any:
            request, rows = received
            return use((request, rows[list(range(rows.batch_size[0]))[::-1]]))

        return super().share(read, reverse)


@replay_defect("got those of", seen="slime 5c530c156")
class RoutesInPutOrder(PlanePolicyWorker):
    """Reads the routes by themselves, in the order of the ids, beside rows in the plan's order."""

    def fetch_shard(
        self, shard: BatchMeta, select_fields: Sequence[str] | None = None
    ) -> WorkerBatch:
        work = super().fetch_shard(shard, select_fields)
        by_id = sorted(range(len(shard.sample_ids)), key=shard.sample_ids.__getitem__)[::-1]
        work.batch[ROUTED_EXPERTS] = work.batch[ROUTED_EXPERTS][by_id]
        return work


@replay_defect("expected one width on all ranks", seen="NeMo-RL (NR-22)")
class WidthByLocalMaximum(PlanePolicyWorker):
    """Pads to the longest row of its own shard, so ranks run collectives of different shapes."""

    def fetch_shard(
        self, shard: BatchMeta, select_fields: Sequence[str] | None = None
    ) -> WorkerBatch:
        assert isinstance(shard, KVBatchMeta)
        width = max(shard.sequence_lengths or [])
        info = {**shard.extra_info, GLOBAL_FORWARD_PAD_SEQLEN: width}
        return super().fetch_shard(replace(shard, extra_info=info), select_fields)


@replay_defect("expected equally many micro-batches", seen="verl#5750 (VL-19)", options=_PACKED)
class PlannedAgainByEachRank(PlanePolicyWorker):
    """Packs its own rows again for training, by what its own memory allows."""

    def fetch_shard(
        self, shard: BatchMeta, select_fields: Sequence[str] | None = None
    ) -> WorkerBatch:
        work = super().fetch_shard(shard, select_fields)
        packing = SequencePacking(40 if self.rank == 0 else 20)
        (plan,) = plan_shards(shard.sequence_lengths or [], 1, sequence_packing=packing)
        return work._replace(packing=plan.packing)


@replay_defect("expected every token to be replayed", seen="rllm 95606270")
class LastRowLeftOut(PlanePolicyWorker):
    """Leaves out a last row that does not fill a micro-batch."""

    def fetch_shard(
        self, shard: BatchMeta, select_fields: Sequence[str] | None = None
    ) -> WorkerBatch:
        work = super().fetch_shard(shard, select_fields)
        self._cut = work.batch.batch_size[0] - 1
        return work

    def logprobs(self, rows: Any, packing: Any, sample_ids: Sequence[str] | None = None) -> Any:
        logprobs = super().logprobs(rows[: self._cut], packing, (sample_ids or [])[: self._cut])
        return logprobs[[*range(self._cut), self._cut - 1]]

"""``PlanePolicyWorker``: a policy worker that reads and writes its rows in a data plane.

    driver ── meta of a shard ──▶ worker ── fetch ──▶ plane
                                         ── write one column of logprobs ──▶ plane

The worker waits for the plane; in collectives it waits for other ranks, see ``PolicyWorker``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlconform.contract import BatchMeta, KVBatchMeta
from rlconform.contract.fields import (
    INPUT_IDS,
    LP_SEED_FIELDS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
    ROUTED_EXPERTS,
)
from rlconform.grpo.config import ClippedPGLossConfig
from rlconform.grpo.plane_traffic import Attach, PlaneActor
from rlconform.grpo.router_replay.trace import RouteTrace
from rlconform.grpo.router_replay.trace_records import ReplayStage, TraceRank
from rlconform.grpo.workers.policy import Metrics
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.plane import DataPlaneWorkerMixin
from rlconform.plane.worker_mixin import WorkerBatch


class PlanePolicyWorker(PlaneActor, DataPlaneWorkerMixin, PolicyWorker):
    """One rank with a client of the plane; ``build`` comes before ``attach``."""

    def attach(self, attach: Attach, pad_token_id: int) -> None:
        """Attach to the running plane, after detaching from a previous one."""
        pad_values: dict[str, complex] = {INPUT_IDS: pad_token_id}
        if self.policy.replay is not None:
            pad_values[ROUTED_EXPERTS] = self.policy.replay.format.missing
        self.attach_plane(
            self._open_client(attach),
            ranks=self.policy.model_ranks,
            replica=self.policy.replica,
            pad_values=pad_values,
        )

    def open_route_trace(self, folder: Path, run: str) -> None:
        """Write the trace of router replay from now on; ``RuntimeError`` without router replay."""
        replay = self.policy.replay
        if replay is None:
            raise RuntimeError("the policy doesn't replay routes, so there is nothing to trace")
        ranks = self._attached().ranks
        dp_rank = self.layout.dp_rank(self.rank)
        rank = TraceRank(dp=dp_rank, tp=ranks.tp, cp=ranks.cp, pp=ranks.pp)
        replay.trace = RouteTrace(folder, run, replay.format, rank)

    def logprobs_from_meta(self, shard: KVBatchMeta) -> None:
        """Compute and write ``prev_logprobs`` of the shard's rows."""
        fields = list(LP_SEED_FIELDS)
        if self.policy.replay is not None:
            fields.append(ROUTED_EXPERTS)
        with self._traced("prev_logprobs", shard, fields) as work:
            logprobs = self.logprobs(work.batch, work.packing, shard.sample_ids)
        self.write_back(shard, PREV_LOGPROBS, logprobs)

    def reference_logprobs_from_meta(self, shard: KVBatchMeta) -> None:
        """Compute and write ``reference_policy_logprobs`` of the shard's rows."""
        work = self._fetch(shard, LP_SEED_FIELDS)
        logprobs = self.reference_logprobs(work.batch, work.packing)
        self.write_back(shard, REFERENCE_POLICY_LOGPROBS, logprobs)

    def train_from_meta(
        self,
        shard: KVBatchMeta,
        select_fields: list[str],
        n_batches: int,
        loss_fn: ClippedPGLossConfig | None = None,
        mbs: int | None = None,
    ) -> list[Metrics]:
        """Train on these columns of the shard's rows, see ``RankPolicy.train``."""
        with self._traced("train", shard, select_fields) as work:
            return self.train(work.batch, work.packing, n_batches, loss_fn, mbs, shard.sample_ids)

    def evaluate_from_meta(
        self,
        shard: KVBatchMeta,
        select_fields: list[str],
        n_batches: int,
        loss_fn: ClippedPGLossConfig | None = None,
        mbs: int | None = None,
    ) -> list[Metrics]:
        """Compute the metrics of ``train_from_meta`` without updates, see ``RankPolicy``."""
        with self._traced("evaluate", shard, select_fields) as work:
            return self.policy.evaluate(
                work.batch, work.packing, n_batches, loss_fn, mbs, shard.sample_ids
            )

    def train_microbatches_from_meta(self, shard: KVBatchMeta, select_fields: list[str]) -> None:
        """Add the gradients of a chunk's shard, see ``RankPolicy.train_microbatches``."""
        with self._traced("train", shard, select_fields) as work:
            self.policy.train_microbatches(work.batch, work.packing, shard.sample_ids)

    def write_back(self, meta: BatchMeta, field: str, values: Any) -> BatchMeta | None:
        """Write a column of the meta's rows, see ``DataPlaneWorkerMixin``, and note it.

        If the writer fails, the ranks that would go on without it fail too.
        """
        write = super().write_back
        receipt = self.policy.together(lambda: write(meta, field, values))
        if receipt is not None and self._trace is not None:
            self._trace.wrote(field, meta.sample_ids)
        return receipt

    @contextmanager
    def _traced(
        self, stage: ReplayStage, shard: KVBatchMeta, fields: Sequence[str]
    ) -> Iterator[WorkerBatch]:
        """Fetch a shard for a stage, which runs in the block; write both into the trace."""
        work = self._fetch(shard, fields)
        if self._trace is not None:
            self._trace.fetched(stage, shard.sample_ids, work.batch)
        yield work
        if self._trace is not None:
            self._trace.passed()

    def _fetch(self, shard: KVBatchMeta, fields: Sequence[str]) -> WorkerBatch:
        """Fetch the shard; a rank that can't makes the ranks fail that would wait for it."""
        return self.policy.together(lambda: self.fetch_shard(shard, fields))

    @property
    def _trace(self) -> RouteTrace | None:
        replay = self.policy.replay
        return None if replay is None else replay.trace

    def detach(self) -> None:
        """Detach from the plane. Idempotent."""
        if self._policy is not None and self._trace is not None:
            self._trace.close()
        self.detach_plane()
        super().detach()

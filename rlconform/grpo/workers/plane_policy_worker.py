"""``PlanePolicyWorker``: a policy worker that reads and writes its rows in a data plane.

    driver ── meta of a shard ──▶ worker ── fetch ──▶ plane
                                         ── write one column of logprobs ──▶ plane

The worker waits for the plane; in collectives it waits for other ranks, see ``PolicyWorker``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import (
    INPUT_IDS,
    LP_SEED_FIELDS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
)
from rlconform.grpo.config import ClippedPGLossConfig
from rlconform.grpo.plane_traffic import Attach, PlaneActor
from rlconform.grpo.workers.policy import Metrics
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.plane import DataPlaneWorkerMixin
from rlconform.plane.worker_mixin import WorkerBatch


class PlanePolicyWorker(PlaneActor, DataPlaneWorkerMixin, PolicyWorker):
    """One rank with a client of the plane; ``build`` comes before ``attach``."""

    def attach(self, attach: Attach, pad_token_id: int) -> None:
        """Attach to the running plane, after detaching from a previous one."""
        self.attach_plane(
            self._open_client(attach),
            ranks=self.policy.model_ranks,
            replica=self.policy.replica,
            pad_values={INPUT_IDS: pad_token_id},
        )

    def logprobs_from_meta(self, shard: KVBatchMeta) -> None:
        """Compute and write ``prev_logprobs`` of the shard's rows."""
        self._write_logprobs(shard, PREV_LOGPROBS, self.logprobs)

    def reference_logprobs_from_meta(self, shard: KVBatchMeta) -> None:
        """Compute and write ``reference_policy_logprobs`` of the shard's rows."""
        self._write_logprobs(shard, REFERENCE_POLICY_LOGPROBS, self.reference_logprobs)

    def _write_logprobs(
        self, shard: KVBatchMeta, column: str, compute: Callable[..., Tensor]
    ) -> None:
        work = self._fetch(shard, LP_SEED_FIELDS)
        self.write_back(shard, column, compute(work.batch, work.packing))

    def train_from_meta(
        self,
        shard: KVBatchMeta,
        select_fields: list[str],
        n_batches: int,
        loss_fn: ClippedPGLossConfig | None = None,
        mbs: int | None = None,
    ) -> list[Metrics]:
        """Train on these columns of the shard's rows, see ``RankPolicy.train``."""
        work = self._fetch(shard, select_fields)
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
        work = self._fetch(shard, select_fields)
        return self.policy.evaluate(work.batch, work.packing, n_batches, loss_fn, mbs)

    def train_microbatches_from_meta(self, shard: KVBatchMeta, select_fields: list[str]) -> None:
        """Add the gradients of a chunk's shard, see ``RankPolicy.train_microbatches``."""
        work = self._fetch(shard, select_fields)
        self.policy.train_microbatches(work.batch, work.packing, shard.sample_ids)

    def _fetch(self, shard: KVBatchMeta, fields: Sequence[str]) -> WorkerBatch:
        """Fetch the shard; a rank that can't makes the ranks fail that would wait for it."""
        return self.policy.together(lambda: self.fetch_shard(shard, fields))

    def detach(self) -> None:
        """Detach from the plane. Idempotent."""
        self.detach_plane()
        super().detach()

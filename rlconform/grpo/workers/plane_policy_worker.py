"""``PlanePolicyWorker``: a policy worker that reads and writes its rows in a data plane.

    driver ── meta of a shard ──▶ worker ── fetch ──▶ plane
                                         ── write one column of logprobs ──▶ plane
           ◀── receipt ─────────┘

The worker waits for the plane; in collectives it waits for other ranks, see ``PolicyWorker``.
"""

from __future__ import annotations

from rlconform.contract import BatchMeta, KVBatchMeta
from rlconform.contract.fields import (
    INPUT_IDS,
    LP_SEED_FIELDS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
)
from rlconform.grpo.plane_traffic import Attach, Traffic, TrafficMeter
from rlconform.grpo.workers.policy_model import Metrics
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.plane import DataPlaneWorkerMixin, MetricsClient, ModelRanks


class PlanePolicyWorker(DataPlaneWorkerMixin, PolicyWorker):
    """One rank with a client of the plane, without tensor or pipeline parallelism."""

    _client: MetricsClient | None = None

    def attach(self, attach: Attach, pad_token_id: int) -> None:
        """Attach to the running plane, after detaching from a previous one."""
        self.detach()
        self._meter = TrafficMeter()
        self._client = MetricsClient(attach(), self._meter.on_operation)
        self.attach_plane(
            self._client,
            ranks=ModelRanks(tp=0, cp=0, pp=0),
            pad_values={INPUT_IDS: pad_token_id},
        )

    def logprobs_from_meta(self, shard: KVBatchMeta) -> BatchMeta | None:
        """Compute and write ``prev_logprobs`` of the shard's rows; return the plane's receipt."""
        work = self.fetch_shard(shard, LP_SEED_FIELDS)
        logprobs = self.logprobs(work.batch, work.packing)
        return self.write_back(shard, PREV_LOGPROBS, logprobs)

    def reference_logprobs_from_meta(self, shard: KVBatchMeta) -> BatchMeta | None:
        """Compute and write ``reference_policy_logprobs``; return the plane's receipt."""
        work = self.fetch_shard(shard, LP_SEED_FIELDS)
        logprobs = self.reference_logprobs(work.batch, work.packing)
        return self.write_back(shard, REFERENCE_POLICY_LOGPROBS, logprobs)

    def train_from_meta(
        self, shard: KVBatchMeta, select_fields: list[str], n_batches: int
    ) -> list[Metrics]:
        """Train on these columns of the shard's rows, see ``PolicyModel.train``."""
        work = self.fetch_shard(shard, select_fields)
        return self.train(work.batch, work.packing, n_batches)

    def traffic(self) -> Traffic:
        """Return the traffic of this rank's client since the last call."""
        return self._meter.take()

    def detach(self) -> None:
        """Detach from the plane. Idempotent."""
        self.detach_plane()
        if self._client is not None:
            self._client.close()
            self._client = None

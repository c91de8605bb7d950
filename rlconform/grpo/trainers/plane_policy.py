"""``PlanePolicy``: makes the ranks process a meta's rows; reads and writes the driver's columns.

    driver ── prepare_step ──────────────▶ plane      registers the step's partition
           ── get_logprobs_from_meta ──▶ ranks ── fetch, write one column back ──▶ plane
           ── read_from_dataplane ◀────── plane
           ── write_to_dataplane ───────▶ plane
           ── train_from_meta ─────────▶ ranks ── fetch ──▶ plane
           ── finish_step ──────────────▶ plane      clears the step's rows

Each call blocks the driver until the ranks have answered; the ranks wait for the plane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, INPUT_IDS
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig, Stage
from rlconform.grpo.plane_traffic import Attach, Traffic, TrafficMeter
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import ROLLOUT_FIELDS
from rlconform.grpo.trainers.driver_step import prompts_to_generate, train_fields
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_model import Metrics
from rlconform.plane import MetricsClient, read_columns, shard_meta_for_dp, write_columns

#: Partitions of a run; each is cleared and reused.
TRAIN_PARTITION = "train"
VAL_PARTITION = "val"

#: Consumer tasks of the training partition, one for each stage that reads it.
TASKS = ["prev_lp", "ref_lp", "train"]


class PlanePolicy:
    """Attaches the actors to the run's plane, and calls the actors and the plane.

    ``client`` owns the plane; the caller closes ``client``. ``attach`` opens a client in an actor,
    so it is pickled. ``PlaneUnavailable`` if an actor could not attach to the plane.
    """

    def __init__(
        self,
        actors: RunActors,
        config: MasterConfig,
        client: DataPlaneClient,
        attach: Attach,
        pad_token_id: int,
    ) -> None:
        self._actors = actors
        self._config = config
        self._pad_values = {INPUT_IDS: pad_token_id}
        self._meter = TrafficMeter()
        self._client = MetricsClient(client, self._meter.on_operation)
        actors.workers.all(PlanePolicyWorker.attach, attach, pad_token_id)
        actors.call_rollout_worker(PlaneRolloutWorker.attach, attach)

    def prepare_step(self) -> None:
        """Register the partition of the step's rows."""
        group = self._config.grpo.num_generations_per_prompt
        self._client.register_partition(
            partition_id=TRAIN_PARTITION,
            fields=list(dict.fromkeys([*ROLLOUT_FIELDS, *train_fields(self._config)])),
            num_samples=prompts_to_generate(self._config.grpo) * group,
            consumer_tasks=TASKS,
            grpo_group_size=group,
        )

    def prepare_val_partition(self, num_samples: int) -> None:
        """Register the partition of the validation rows."""
        self._client.register_partition(
            partition_id=VAL_PARTITION,
            fields=list(ROLLOUT_FIELDS),
            num_samples=num_samples,
            consumer_tasks=["val"],
        )

    def discard_samples(
        self, sample_ids: Sequence[str], partition_id: str = TRAIN_PARTITION
    ) -> None:
        """Clear dropped rows in the plane; an empty list makes no call."""
        if sample_ids:
            self._client.clear_samples(sample_ids=list(sample_ids), partition_id=partition_id)

    def finish_step(self, meta: KVBatchMeta) -> None:
        """Clear the step's rows, so that the plane is as empty as before the step."""
        self.discard_samples(meta.sample_ids, meta.partition_id)

    def read_from_dataplane(self, meta: KVBatchMeta, fields: Sequence[str]) -> TensorDict:
        """Read columns of the rows; per-token columns are padded to the step's width, (N, S)."""
        return read_columns(
            self._client,
            meta,
            fields,
            pad_value_dict=self._pad_values,
            pad_to_seqlen=meta.extra_info.get(GLOBAL_FORWARD_PAD_SEQLEN),
        )

    def write_to_dataplane(self, meta: KVBatchMeta, columns: Mapping[str, Tensor]) -> KVBatchMeta:
        """Write columns of the rows in one put; return the meta with their names added."""
        write_columns(self._client, meta, columns)
        return meta.with_fields(columns)

    def stamp_tags(self, meta: KVBatchMeta, names: Sequence[str]) -> None:
        """Copy tags from the meta to the plane, for consumers that claim the rows."""
        tags = [{name: row[name] for name in names} for row in meta.tags or []]
        self._client.put_samples(
            sample_ids=meta.sample_ids, partition_id=meta.partition_id, tags=tags
        )

    def get_logprobs_from_meta(self, meta: KVBatchMeta) -> None:
        """Make the ranks compute ``prev_logprobs`` and write them to the plane."""
        self._logprobs(PlanePolicyWorker.logprobs_from_meta, meta)

    def get_reference_policy_logprobs_from_meta(self, meta: KVBatchMeta) -> None:
        """Make the ranks compute ``reference_policy_logprobs`` and write them to the plane."""
        self._logprobs(PlanePolicyWorker.reference_logprobs_from_meta, meta)

    def train_from_meta(self, meta: KVBatchMeta) -> list[Metrics]:
        """Update the weights once per global batch."""
        size = self._config.train_global_batch_size
        shards = self._shards(meta, "train", size)
        fields = train_fields(self._config)
        updates = self._actors.workers.each(
            PlanePolicyWorker.train_from_meta,
            [(shard, fields, meta.size // size) for shard in shards],
        )
        return updates[0]

    def traffic(self) -> dict[str, float]:
        """Return the metrics ``plane/...`` of all processes' traffic since the last call."""
        by_process = {
            "driver": self._meter.take(),
            "rollout": self._actors.call_rollout_worker(PlaneRolloutWorker.traffic),
            "workers": Traffic.of_ranks(self._actors.workers.all(PlanePolicyWorker.traffic)),
        }
        clients = by_process.values()
        return {
            "plane/calls": float(sum(each.calls for each in clients)),
            "plane/bytes_written": float(sum(each.bytes_written for each in clients)),
            "plane/bytes_read": float(sum(each.bytes_read for each in clients)),
            **{f"plane/{name}_s": each.seconds for name, each in by_process.items()},
            "plane/s": sum(each.seconds for each in clients),
        }

    def shutdown(self) -> None:
        """Detach the actors from the plane."""
        self._actors.workers.all(PlanePolicyWorker.detach)
        self._actors.call_rollout_worker(PlaneRolloutWorker.detach)

    def _logprobs(self, method: Callable[..., None], meta: KVBatchMeta) -> None:
        shards = self._shards(meta, "logprob")
        self._actors.workers.each(method, [(shard,) for shard in shards])

    def _shards(
        self, meta: KVBatchMeta, stage: Stage, batch_size: int | None = None
    ) -> list[KVBatchMeta]:
        packing = self._config.policy.packing
        shards, _ = shard_meta_for_dp(
            meta,
            self._actors.workers.world,
            batch_size,
            sequence_packing=packing.sequence_packing(stage),
            dynamic_batching=packing.dynamic_batching(stage),
        )
        return shards

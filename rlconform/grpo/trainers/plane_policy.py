"""``PlanePolicy``: the policy of a driver that holds names, and no tensors but two columns.

    driver ── prepare_step ──────────────▶ plane      the partition of the step
           ── get_logprobs_from_meta ──▶ ranks ── fetch, write one column back ──▶ plane
           ── read_from_dataplane ◀────── plane
           ── write_to_dataplane ───────▶ plane
           ── train_from_meta ─────────▶ ranks ── fetch ──▶ plane
           ── finish_step ──────────────▶ plane      its rows are gone

Each call waits for the ranks and they for the plane; nothing else waits for anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, INPUT_IDS
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig, Stage
from rlconform.grpo.plane_traffic import Attach, Traffic, TrafficMeter
from rlconform.grpo.rollout.worker import ROLLOUT_FIELDS
from rlconform.grpo.trainers.driver_step import prompts_to_generate, train_fields
from rlconform.grpo.workers.policy_model import Metrics
from rlconform.plane import MetricsClient, read_columns, shard_meta_for_dp, write_columns

#: Partitions of a run; each is cleared and used again.
TRAIN_PARTITION = "train"
VAL_PARTITION = "val"

#: Consumer tasks of the training partition, one for each stage that reads it.
TASKS = ["prev_lp", "ref_lp", "train"]


class PlanePolicy:
    """Attaches the crew to the run's plane, and speaks to both.

    Example:
        policy = PlanePolicy(crew, config, client, attach, pad_token_id)
        policy.prepare_step()
        meta, carry = crew.rollouts("collect_to_plane", problems, "train", TRAIN_PARTITION)
        policy.get_logprobs_from_meta(meta)
        updates = policy.train_from_meta(meta)
        policy.finish_step(meta)
        policy.shutdown()

    Args:
        crew: Of ``PlanePolicyWorker`` and ``PlaneRolloutWorker``, built.
        config: The run's.
        client: The driver's, which owns the plane; whoever opened it closes it.
        attach: Opens a client in an actor; it travels there.
        pad_token_id: What ``input_ids`` are padded with.

    Raises:
        PlaneUnavailable: An actor could not attach.
    """

    def __init__(
        self,
        crew: RunActors,
        config: MasterConfig,
        client: DataPlaneClient,
        attach: Attach,
        pad_token_id: int,
    ) -> None:
        self._crew = crew
        self._config = config
        self._pad_values = {INPUT_IDS: pad_token_id}
        self._meter = TrafficMeter()
        self._client = MetricsClient(client, self._meter.hear)
        crew.workers.all("attach", attach, pad_token_id)
        crew.rollouts("attach", attach)

    def prepare_step(self) -> None:
        """Register the partition that the step's rows are written to."""
        group = self._config.grpo.num_generations_per_prompt
        self._client.register_partition(
            partition_id=TRAIN_PARTITION,
            fields=list(dict.fromkeys([*ROLLOUT_FIELDS, *train_fields(self._config)])),
            num_samples=prompts_to_generate(self._config.grpo) * group,
            consumer_tasks=TASKS,
            grpo_group_size=group,
        )

    def prepare_val_partition(self, num_samples: int) -> None:
        """Register the partition that a validation's rows are written to."""
        self._client.register_partition(
            partition_id=VAL_PARTITION,
            fields=list(ROLLOUT_FIELDS),
            num_samples=num_samples,
            consumer_tasks=["val"],
        )

    def discard_samples(
        self, sample_ids: Sequence[str], partition_id: str = TRAIN_PARTITION
    ) -> None:
        """Drop rows that are not trained on; no ids, no call."""
        if sample_ids:
            self._client.clear_samples(sample_ids=list(sample_ids), partition_id=partition_id)

    def finish_step(self, meta: KVBatchMeta) -> None:
        """Drop the step's rows: the plane is as empty as before it."""
        self.discard_samples(meta.sample_ids, meta.partition_id)

    def read_from_dataplane(self, meta: KVBatchMeta, fields: Sequence[str]) -> TensorDict:
        """Columns of the rows, per-token ones (N, S) of the step's width."""
        return read_columns(
            self._client,
            meta,
            fields,
            pad_value_dict=self._pad_values,
            pad_to_seqlen=meta.extra_info.get(GLOBAL_FORWARD_PAD_SEQLEN),
        )

    def write_to_dataplane(self, meta: KVBatchMeta, columns: Mapping[str, Tensor]) -> KVBatchMeta:
        """Write further columns of the rows in one put; the meta that names them too."""
        write_columns(self._client, meta, columns)
        return meta.with_fields(columns)

    def stamp_tags(self, meta: KVBatchMeta, names: Sequence[str]) -> None:
        """Write tags that the meta has to the plane, for whoever claims the rows."""
        tags = [{name: row[name] for name in names} for row in meta.tags or []]
        self._client.put_samples(
            sample_ids=meta.sample_ids, partition_id=meta.partition_id, tags=tags
        )

    def get_logprobs_from_meta(self, meta: KVBatchMeta) -> None:
        """Have the ranks write ``prev_logprobs`` of the rows."""
        self._each_shard("logprobs_from_meta", meta, "logprob")

    def get_reference_policy_logprobs_from_meta(self, meta: KVBatchMeta) -> None:
        """Have the ranks write ``reference_policy_logprobs`` of the rows."""
        self._each_shard("reference_logprobs_from_meta", meta, "logprob")

    def train_from_meta(self, meta: KVBatchMeta) -> list[Metrics]:
        """One update of the weights for each global batch of the rows."""
        size = self._config.train_global_batch_size
        shards = self._shards(meta, "train", size)
        fields = train_fields(self._config)
        updates: list[list[Metrics]] = self._crew.workers.each(
            "train_from_meta", [(shard, fields, meta.size // size) for shard in shards]
        )
        return updates[0]

    def traffic(self) -> dict[str, float]:
        """What went through the plane since the last call, by whose client; see ``Traffic``."""
        of_process = {
            "driver": self._meter.take(),
            "rollout": self._crew.rollouts("traffic"),
            "workers": Traffic.of_ranks(self._crew.workers.all("traffic")),
        }
        every = of_process.values()
        return {
            "plane/calls": float(sum(each.calls for each in every)),
            "plane/bytes_written": float(sum(each.bytes_written for each in every)),
            "plane/bytes_read": float(sum(each.bytes_read for each in every)),
            **{f"plane/{name}_s": each.seconds for name, each in of_process.items()},
            "plane/s": sum(each.seconds for each in every),
        }

    def shutdown(self) -> None:
        """Detach the crew."""
        self._crew.workers.all("detach")
        self._crew.rollouts("detach")

    def _each_shard(self, method: str, meta: KVBatchMeta, stage: Stage) -> None:
        self._crew.workers.each(method, [(shard,) for shard in self._shards(meta, stage)])

    def _shards(
        self, meta: KVBatchMeta, stage: Stage, batch_size: int | None = None
    ) -> list[KVBatchMeta]:
        packing = self._config.policy.packing
        shards, _ = shard_meta_for_dp(
            meta,
            self._crew.workers.world,
            batch_size,
            sequence_packing=packing.sequence_packing(stage),
            dynamic_batching=packing.dynamic_batching(stage),
        )
        return shards

"""``PlanePolicy``: makes the ranks process a meta's rows; reads and writes the driver's columns.

    driver ── prepare_step ──────────────▶ plane      registers the step's partition
           ── get_logprobs_from_meta ──▶ ranks ── fetch, write one column back ──▶ plane
           ── read_from_dataplane ◀────── plane
           ── write_to_dataplane ───────▶ plane
           ── train_from_meta ─────────▶ ranks ── fetch ──▶ plane
              or begin_train_step, train_microbatches_from_meta per chunk, finish_train_step
           ── finish_step ──────────────▶ plane      clears the step's rows

Each call blocks the driver until the ranks have answered; the ranks wait for the plane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from uuid import uuid4

from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, INPUT_IDS
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import ClippedPGLossConfig, MasterConfig, Stage
from rlconform.grpo.plane_traffic import Attach, Traffic, TrafficMeter, metered_client
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import TOKEN_VERSIONS, rollout_fields
from rlconform.grpo.router_replay.trace import trace_folder
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.trainers.base import StageTimer
from rlconform.grpo.trainers.driver_step import (
    driver_fields,
    set_padded_width,
    train_fields,
)
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy import Metrics
from rlconform.grpo.workers.rank_layout import RankLayout
from rlconform.grpo.workers.train_step import TrainStepError
from rlconform.plane import EventClient, read_columns, shard_meta_for_dp, write_columns

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
        events: RunEvents | None = None,
    ) -> None:
        self._actors = actors
        self._config = config
        self._layout = RankLayout.of(config.policy, actors.workers.world)
        self._pad_values = {INPUT_IDS: pad_token_id}
        self._step_fields: list[str] | None = None  # columns that the open step reads
        self._meter = TrafficMeter()
        self._event_client: EventClient | None = None
        if events is not None and events.enabled:
            client = self._event_client = EventClient(client, events.writer)
        self._client = metered_client(client, self._meter, None)
        actors.workers.all(PlanePolicyWorker.attach, attach, pad_token_id)
        actors.call_rollout_workers(PlaneRolloutWorker.attach, attach)
        self._open_trace()

    def _open_trace(self) -> None:
        """Make all actors write the trace of router replay, if the environment asks for it."""
        folder = trace_folder(self._config)
        if folder is None:
            return
        run = uuid4().hex[:8]
        self._actors.workers.all(PlanePolicyWorker.open_route_trace, folder, run)
        self._actors.call_rollout_workers(PlaneRolloutWorker.open_route_trace, folder, run)

    @property
    def client(self) -> DataPlaneClient:
        """The driver's client."""
        return self._client

    def give_up_calls(self) -> None:
        """Write into the event log that the driver waits for its calls of the plane no longer."""
        if self._event_client is not None:
            self._event_client.give_up_calls()

    def prepare_step(self, num_samples: int, group_size: int | None = None) -> None:
        """Register the partition of a step with this many rows, in groups of ``group_size``."""
        config = self._config
        fields = [*rollout_fields(config), *driver_fields(config), *train_fields(config)]
        if config.async_rl is not None:
            fields.append(TOKEN_VERSIONS)
        self._client.register_partition(
            partition_id=TRAIN_PARTITION,
            fields=list(dict.fromkeys(fields)),
            num_samples=num_samples,
            consumer_tasks=TASKS,
            grpo_group_size=group_size,
        )

    def prepare_val_partition(self, num_samples: int) -> None:
        """Register the partition of the validation rows."""
        self._client.register_partition(
            partition_id=VAL_PARTITION,
            fields=rollout_fields(self._config),
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

    def train_from_meta(
        self,
        meta: KVBatchMeta,
        loss_fn: ClippedPGLossConfig | None = None,
        eval_mode: bool = False,
        gbs: int | None = None,
        mbs: int | None = None,
        timer: StageTimer | None = None,
    ) -> list[Metrics]:
        """Update the weights once per global batch.

        Args:
            meta: N rows with lengths, and with all columns of ``train_fields`` in the plane.
            loss_fn: Options of the loss, by default the configured ones.
            eval_mode: Compute the same metrics without updates, so no ``grad_norm`` and ``lr``.
            gbs: Rows per global batch, by default ``policy.train_global_batch_size``.
            mbs: Rows per micro-batch without packing, by default ``policy.train_micro_batch_size``.
            timer: Gets the stages ``policy_training/shard_meta`` and ``policy_training/ranks``.

        Returns:
            The metrics of each update, see ``RankPolicy.finish_train_step``.

        Raises:
            TrainStepError: A step is open, see ``begin_train_step``.
            ValueError: N isn't a multiple of ``gbs``, or ``gbs`` of the number of ranks; ``mbs``
                together with packing; a KL penalty without a configured reference policy.
        """
        size = gbs or self._config.train_global_batch_size
        fields = self._train_fields(loss_fn)
        method = (
            PlanePolicyWorker.evaluate_from_meta if eval_mode else PlanePolicyWorker.train_from_meta
        )
        with _stage(timer, "policy_training/shard_meta"):
            shards = self._shards(meta, "train", size)
        with _stage(timer, "policy_training/ranks"):
            updates = self._actors.workers.each_replica(
                method,
                self._layout,
                [(shard, fields, meta.size // size, loss_fn, mbs) for shard in shards],
            )
        return updates[0]

    def begin_train_step(
        self, loss_fn: ClippedPGLossConfig | None = None, *, mbs: int | None = None
    ) -> None:
        """Open an update whose rows arrive in chunks.

            policy.begin_train_step()
            for meta in chunks:
                policy.train_microbatches_from_meta(meta)
            metrics = policy.finish_train_step()   # or abort_train_step(), after an error

        The gradients of all chunks are added up, and divided by the counts of tokens or rows of the
        whole step at its end. So the update is that of ``train_from_meta`` on all rows: bit by bit
        if the same rows share micro-batches of the same width in the same order on the same ranks,
        up to the rounding of sums otherwise. Logprobs may be computed between chunks.

        ``loss_fn`` and ``mbs`` are those of ``train_from_meta``.

        Raises:
            TrainStepError: A step is open.
            ValueError: As in ``train_from_meta``.
        """
        fields = self._train_fields(loss_fn)
        self._actors.workers.all(PlanePolicyWorker.begin_train_step, loss_fn, mbs)
        self._step_fields = fields

    def train_microbatches_from_meta(
        self, meta: KVBatchMeta, timer: StageTimer | None = None
    ) -> None:
        """Add the gradients of the meta's N rows, a chunk of the open step; N a multiple of ranks.

        Chunks may have different widths. ``timer`` is that of ``train_from_meta``. After an error
        the step stays open, to be aborted.

        Raises:
            TrainStepError: No step is open.
            ValueError: N isn't a multiple of the number of ranks.
        """
        if self._step_fields is None:
            raise TrainStepError("no train step is open: call begin_train_step first")
        with _stage(timer, "policy_training/shard_meta"):
            shards = self._shards(meta, "train")
        with _stage(timer, "policy_training/ranks"):
            self._actors.workers.each_replica(
                PlanePolicyWorker.train_microbatches_from_meta,
                self._layout,
                [(shard, self._step_fields) for shard in shards],
            )

    def finish_train_step(self) -> Metrics:
        """Update the weights with the gradients of all chunks; return the update's metrics.

        Raises:
            TrainStepError: No step is open, it has no chunk, or a chunk failed on any rank; an open
                step stays open, to be aborted.
        """
        metrics, *_ = self._actors.workers.all(PlanePolicyWorker.finish_train_step)
        self._step_fields = None
        return metrics

    def abort_train_step(self) -> None:
        """Drop the open step's gradients; weights, optimizer and schedule stay. Idempotent."""
        self._actors.workers.all(PlanePolicyWorker.abort_train_step)
        self._step_fields = None

    def witnessed(self) -> Mapping[str, int]:
        """Return how often each row was trained on in the last update, as its gradients show.

        The update is that of the last ``train_from_meta``, with all of its global batches, or of
        the last finished step. The count is the number of backward passes, on any rank, in which
        the row's logprobs had a gradient: 2 for a row that was trained twice. ``unwitnessed`` has
        the rows without. Both are empty without ``policy.witness``.
        """
        return {sample_id: count for sample_id, count in self._passes().items() if count}

    def unwitnessed(self) -> set[str]:
        """Return the rows of the last update that gave no gradient in any pass.

        Gradients can't show whether they were trained on: all of their tokens are masked or
        clipped, or their advantages are 0 and there is no KL penalty.
        """
        return {sample_id for sample_id, count in self._passes().items() if not count}

    def _passes(self) -> Counter[str]:
        passes: Counter[str] = Counter()
        for of_rank in self._actors.workers.all(PlanePolicyWorker.witnessed):
            passes.update(of_rank)
        return passes

    def traffic(self) -> dict[str, float]:
        """Return the metrics ``plane/...`` of all processes' traffic since the last call."""
        by_process = {
            "driver": self._meter.take(),
            "rollout": Traffic.of_ranks(
                self._actors.call_rollout_workers(PlaneRolloutWorker.traffic)
            ),
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
        self._actors.call_rollout_workers(PlaneRolloutWorker.detach)

    def _logprobs(self, method: Callable[..., None], meta: KVBatchMeta) -> None:
        shards = self._shards(meta, "logprob")
        self._actors.workers.each_replica(method, self._layout, [(shard,) for shard in shards])

    def _train_fields(self, loss_fn: ClippedPGLossConfig | None) -> list[str]:
        configured = self._config.loss_fn
        options = loss_fn or configured
        if options.needs_reference_policy and not configured.needs_reference_policy:
            raise ValueError(
                "reference_policy_kl_penalty needs a reference policy: the configured loss has none"
            )
        return train_fields(self._config.model_copy(update={"loss_fn": options}))

    def _shards(
        self, meta: KVBatchMeta, stage: Stage, batch_size: int | None = None
    ) -> list[KVBatchMeta]:
        packing = self._config.policy.packing
        if GLOBAL_FORWARD_PAD_SEQLEN not in meta.extra_info:
            meta = set_padded_width(meta, self._config)
        shards, _ = shard_meta_for_dp(
            meta,
            self._layout.dp,
            batch_size,
            sequence_packing=packing.sequence_packing(stage),
            dynamic_batching=packing.dynamic_batching(stage),
        )
        return shards


def _stage(timer: StageTimer | None, name: str) -> AbstractContextManager[None]:
    return nullcontext() if timer is None else timer.stage(name)

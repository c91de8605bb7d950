"""``StreamingStep``: trains on a step's groups chunk by chunk, through the plane.

    begin ──▶ chunk: tags, logprobs, advantages, gradients ──▶ ... ──▶ finish: update, clear rows

Each stage blocks on actors and the plane, so it runs in a thread, one at a time; the event loop
goes on meanwhile. What a chunk does is what ``PlaneTrainer.step`` does with a whole step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import ADVANTAGES
from rlconform.grpo.algorithm.dynamic_sampling import STD
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.replay.slots import Slot
from rlconform.grpo.trainers.base import StageTimer, StepResult
from rlconform.grpo.trainers.driver_step import (
    BASELINE,
    REWARD,
    RowSummaries,
    StepRows,
    TrainTargets,
    advantages_and_mask,
    driver_fields,
    score_rollout,
    set_padded_width,
    step_metrics,
)
from rlconform.grpo.trainers.performance import performance
from rlconform.grpo.trainers.plane_policy import PlanePolicy


class StreamingStep:
    """The training side of an asynchronous run, for ``TrainPump``."""

    def __init__(self, policy: PlanePolicy, config: MasterConfig, timer: StageTimer) -> None:
        self._policy, self._config, self._timer = policy, config, timer
        self._chunks: list[tuple[StepRows, TrainTargets]] = []
        self._update: Mapping[str, float] = {}

    async def begin(self) -> None:
        """Begin to add up gradients."""
        self._chunks = []
        await asyncio.to_thread(self._policy.begin_train_step)

    async def chunk(self, slots: Sequence[Slot], meta: KVBatchMeta) -> None:
        """Compute logprobs and advantages of these groups, and add their gradients."""
        summaries: RowSummaries = {
            sample_id: summary
            for slot in slots
            if slot.record is not None
            for sample_id, summary in zip(
                slot.record.meta.sample_ids, slot.record.summaries, strict=True
            )
        }
        await asyncio.to_thread(self._train_on, meta, summaries)

    async def finish(self) -> None:
        """Update the weights, and clear the rows of all chunks in the plane."""
        await asyncio.to_thread(self._finish)

    async def abort(self) -> None:
        """Forget the gradients; the rows stay in the plane."""
        await asyncio.to_thread(self._policy.abort_train_step)

    def result(self) -> StepResult:
        """Return the result of the last step that was finished."""
        first, *others = (rows.meta for rows, _ in self._chunks)
        summaries = {key: row for rows, _ in self._chunks for key, row in rows.summaries.items()}
        targets = _joined([targets for _, targets in self._chunks])
        rows = StepRows(first.concat(*others), summaries, len(self._chunks))
        metrics = step_metrics(rows, targets, [self._update])
        metrics |= performance(rows.meta, [self._update])
        return StepResult(rows.meta.sample_ids, targets.columns[ADVANTAGES], metrics)

    def _train_on(self, meta: KVBatchMeta, summaries: RowSummaries) -> None:
        policy, config = self._policy, self._config
        meta = set_padded_width(score_rollout(meta, summaries, config), config)
        policy.stamp_tags(meta, [REWARD, BASELINE, STD])
        with self._timer.stage("prev_logprobs"):
            policy.get_logprobs_from_meta(meta)
        if config.loss_fn.needs_reference_policy:
            with self._timer.stage("reference_logprobs"):
                policy.get_reference_policy_logprobs_from_meta(meta)
        rows = StepRows(meta, summaries, 1)
        with self._timer.stage("advantages"):
            fields = driver_fields(config)
            read = policy.read_from_dataplane(meta, fields)
            prev, engine, *reference = (read[name] for name in fields)
            targets = advantages_and_mask(rows, prev, engine, config, *reference)
            meta = policy.write_to_dataplane(meta, targets.columns)
        with self._timer.stage("train"):
            policy.train_microbatches_from_meta(meta)
        self._chunks.append((rows._replace(meta=meta), targets))

    def _finish(self) -> None:
        with self._timer.stage("train"):
            self._update = self._policy.finish_train_step()
        with self._timer.stage("finish"):
            for rows, _ in self._chunks:
                self._policy.finish_step(rows.meta)


def _joined(chunks: Sequence[TrainTargets]) -> TrainTargets:
    """Join the targets of chunks: rows one after the other, as wide as the widest chunk."""
    if len(chunks) == 1:
        return chunks[0]
    sizes = [len(chunk.columns[ADVANTAGES]) for chunk in chunks]
    means = [chunk.metrics["seq_logprob_error"] for chunk in chunks]
    return TrainTargets(
        {name: _stacked([chunk.columns[name] for chunk in chunks]) for name in chunks[0].columns},
        {
            "advantage_max": max(chunk.metrics["advantage_max"] for chunk in chunks),
            "seq_logprob_error": sum(m * n for m, n in zip(means, sizes, strict=True)) / sum(sizes),
            "masked_rows": sum(chunk.metrics["masked_rows"] for chunk in chunks),
        },
    )


def _stacked(columns: Sequence[Tensor]) -> Tensor:
    """Concatenate (n, W) or (n,) columns, padded with 0 to the largest W."""
    if columns[0].dim() == 1:
        return torch.cat(list(columns))
    width = max(column.shape[1] for column in columns)
    return torch.cat([pad(column, (0, width - column.shape[1])) for column in columns])

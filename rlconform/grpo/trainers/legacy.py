"""``LegacyTrainer``: GRPO with every batch in the driver's memory.

    problems ──▶ rollout actor ── rows ──▶ driver ── shards ──▶ ranks ── logprobs ──▶ driver
                                             └────── shards ──▶ ranks: an update each

Each call waits for the actors that it asks; nothing else waits for anything.
"""

from __future__ import annotations

from itertools import count

from tensordict import TensorDict

from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import (
    ADVANTAGES,
    GENERATION_LOGPROBS,
    GLOBAL_FORWARD_PAD_SEQLEN,
    INPUT_IDS,
    INPUT_LENGTHS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
)
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.rollout.worker import Rollout
from rlconform.grpo.trainers.base import StepResult, Trainer
from rlconform.grpo.trainers.driver_step import (
    Carries,
    Generated,
    advantages_and_mask,
    chosen,
    scored,
    step_metrics,
    validation_metrics,
    with_width,
)
from rlconform.grpo.trainers.legacy_batch import select_rows
from rlconform.grpo.trainers.legacy_policy import LegacyPolicy


class LegacyTrainer(Trainer):
    """A run whose driver holds each batch; see ``Trainer``.

    Args:
        config: The run's.
        crew: Of ``PolicyWorker`` and ``RolloutWorker``.
    """

    def __init__(self, config: MasterConfig, crew: RunActors) -> None:
        super().__init__(config, crew)
        self._policy = LegacyPolicy(crew.workers, config)

    def step(self) -> StepResult:
        """One step."""
        with self.stopwatch.stage("generation"):
            generated, rows = self._generate()

        with self.stopwatch.stage("prev_logprobs"):
            rows[PREV_LOGPROBS] = self._policy.get_logprobs(rows)

        if self.config.loss_fn.needs_reference_policy:
            with self.stopwatch.stage("reference_logprobs"):
                rows[REFERENCE_POLICY_LOGPROBS] = self._policy.get_reference_policy_logprobs(rows)

        with self.stopwatch.stage("advantages"):
            targets = advantages_and_mask(
                generated, rows[PREV_LOGPROBS], rows[GENERATION_LOGPROBS], self.config
            )
            rows.update(targets.columns)

        with self.stopwatch.stage("train"):
            updates = self._policy.train(rows)

        with self.stopwatch.stage("refit"):
            self.finish_update()

        metrics = step_metrics(generated, targets, updates) | self.stopwatch.take("step")
        return StepResult(generated.meta.sample_ids, targets.columns[ADVANTAGES], metrics)

    def _generate(self) -> tuple[Generated, TensorDict]:
        """Rollouts until the step is full; its rows."""
        collected, carry, rollouts = None, Carries(), list[Rollout]()
        for gen_batches in count(1):
            rollout = self.crew.rollouts("collect", self.next_problems(), "train")
            rollouts.append(rollout)
            carry.update(zip(rollout.sample_ids, rollout.carry, strict=True))
            generated = scored(_names(rollout), carry, self.config)
            selection = chosen(collected, generated, gen_batches, self.config.grpo)
            if selection.complete:
                break
            collected = selection.kept
        meta = with_width(selection.kept, self.config)
        width = meta.extra_info[GLOBAL_FORWARD_PAD_SEQLEN]
        rows = select_rows(rollouts, meta.sample_ids, width, {INPUT_IDS: self.pad_token_id})
        return Generated(meta, carry, gen_batches), rows

    def validate(self) -> dict[str, float]:
        """Validation metrics."""
        with self.stopwatch.stage("validation"):
            rollout = self.crew.rollouts("collect", self.validation_problems(), "val")
        return validation_metrics(rollout.carry) | self.stopwatch.take()

    def shutdown(self) -> None:
        """There is nothing to let go of."""


def _names(rollout: Rollout) -> KVBatchMeta:
    """The rows in names, as the driver scores and chooses them."""
    lengths: list[int] = rollout.columns[INPUT_LENGTHS].tolist()
    return KVBatchMeta("memory", None, list(rollout.sample_ids), sequence_lengths=lengths)

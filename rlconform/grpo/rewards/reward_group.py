"""``RewardGroup``: starts and ends the reward workers of a run; the driver has one.

    driver ── start, build, events ──▶ reward workers (dp_size actors, each with the whole model)
           ── handles ──▶ rollout workers ── batches ──▶ reward workers
           ── shutdown ──▶

The driver waits for ``build``; rows don't go through it. ``events`` opens, watches and closes the
workers' files of events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ray

from rlconform.grpo.actor_events import ActorEvents
from rlconform.grpo.config import ClusterConfig, MasterConfig, RewardModelConfig
from rlconform.grpo.rewards.reward_worker import RewardWorker
from rlconform.grpo.rewards.reward_workers import RewardWorkers
from rlconform.grpo.workers.worker_group import fetch


class RewardGroup:
    """The reward workers of a run; ``placement`` has Ray's options of each."""

    def __init__(
        self,
        options: RewardModelConfig,
        cluster: ClusterConfig,
        placement: Sequence[Mapping[str, Any]],
    ) -> None:
        self._options, self._timeout_s = options, cluster.timeout_s
        self._actors: list[Any] = [
            ray.remote(RewardWorker).options(**each).remote(cluster.device) for each in placement
        ]
        self.events = ActorEvents(self._actors, cluster.timeout_s, "a reward worker")

    def build(self, config: MasterConfig) -> None:
        """Load the model in every worker.

        Raises:
            ConfigError: The model can't be used.
            WorkerLost: A worker died or did not answer in time.
        """
        calls = [actor.build.remote(config) for actor in self._actors]
        fetch(calls, self._timeout_s, "a reward worker's build")

    def handles(self) -> RewardWorkers:
        """Return what the rollout workers need."""
        resting = self._options.sleep_while_generating
        return RewardWorkers(tuple(self._actors), self._timeout_s, resting)

    def shutdown(self) -> None:
        """End the workers. Idempotent."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

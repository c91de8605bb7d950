"""The actors of a run: the policy's ranks, and the one that writes rollouts.

    crew = Crew(PolicyWorker, RolloutWorker, config.cluster)
    crew.build(config)                      # a fresh policy and engine; again for the next run
    crew.rollouts("collect", problems, "train")
    crew.refit(version=1)                   # the policy's weights into the engine
    crew.shutdown()

Actors take long to start, most of it imports; a run's models take a moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

from rlconform.contract import ConfigError
from rlconform.grpo.config import ClusterConfig, MasterConfig
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.worker_group import WorkerGroup, fetch

#: Of a GPU: what the policy's ranks leave over where there are no more GPUs than ranks.
_GPU_SHARE = 0.1


def shortage(config: ClusterConfig, there: Mapping[str, float]) -> str:
    """What the run's Ray lacks for these ranks, or "": actors without a place would wait forever.

    Args:
        config: How many ranks, and on what.
        there: Ray's resources by name, as ``ray.cluster_resources`` gives them.
    """
    needed = {"CPU": config.dp_size + 1}  # the rollout actor beside the ranks
    if config.device == "cuda":
        needed["GPU"] = config.dp_size
    for name, count in needed.items():
        if count > (has := there.get(name, 0)):
            return (
                f"cluster.dp_size={config.dp_size} on {config.device} takes {count} {name}s, and "
                f"Ray has {has:g} here: lower it, or start the run from a process that has "
                "joined a larger Ray"
            )
    return ""


class RunActors:
    """Actors that stand ready; ``build`` gives them a run's models.

    Attributes:
        workers: The policy's ranks.

    Args:
        worker_class: Of the ranks.
        rollout_class: Of the actor that writes rollouts.
        config: How many ranks, and on what.

    Raises:
        ConfigError: Ray has not the CPUs or GPUs that so many ranks take.
        WorkerLost: An actor did not start.
    """

    def __init__(
        self,
        worker_class: type[PolicyWorker],
        rollout_class: type[RolloutWorker],
        config: ClusterConfig,
    ) -> None:
        if short := shortage(config, ray.cluster_resources()):  # type: ignore[no-untyped-call]
            raise ConfigError(short)
        self._timeout_s = config.timeout_s
        self.workers = WorkerGroup(worker_class, config)
        on_gpu = config.device == "cuda"
        actor: Any = ray.remote(rollout_class).options(
            num_cpus=1, num_gpus=_GPU_SHARE if on_gpu else 0
        )
        self._rollouts = actor.remote(config.device)

    def build(self, config: MasterConfig) -> None:
        """Make the run's policy on every rank, and its engine; both from the same weights."""
        self.workers.all("build", config)
        self.rollouts("build", config)

    def rollouts(self, method: str, *arguments: Any) -> Any:
        """Call a method of the rollout actor.

        Raises:
            WorkerLost: It died, or the timeout passed.
            Exception: What it raised.
        """
        call = getattr(self._rollouts, method).remote(*arguments)
        return fetch(call, self._timeout_s, f"the rollout actor's {method}")

    def refit(self, version: int) -> None:
        """Bring the policy's weights to the engine, from rank 0 and not through the driver."""
        weights, *_ = self.workers.start("weights")
        self.rollouts("refit", weights, version)

    def shutdown(self) -> None:
        """End the actors. Idempotent."""
        self.workers.shutdown()
        ray.kill(self._rollouts)

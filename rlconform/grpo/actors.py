"""The Ray actors of a run: one policy worker per rank, and one rollout worker.

    driver ── build, weights ──▶ policy workers (ranks) ◀── collectives ──▶ each other
           ── collect, refit ──▶ rollout worker ◀── weights of rank 0, through Ray's object store

Starting actors takes seconds, mostly for imports, and ``build`` is quick. Therefore several runs
can use the same actors. Every call blocks the driver until the actors have answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import ray

from rlconform.contract import ConfigError
from rlconform.grpo.config import ClusterConfig, MasterConfig
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.worker_group import ROLLOUT_GPU_SHARE, WorkerGroup, fetch, remote_class

P = ParamSpec("P")
R = TypeVar("R")


def missing_resources(config: ClusterConfig, available: Mapping[str, float]) -> str:
    """Return an error message if ``available`` has too few CPUs or GPUs for the run, else "".

    Without this check, actors that Ray can't schedule would wait forever.
    """
    needed = {"CPU": config.dp_size + 1}  # one for the rollout worker
    if config.device == "cuda":
        needed["GPU"] = config.dp_size
    for name, count in needed.items():
        if count > (has := available.get(name, 0)):
            return (
                f"cluster.dp_size={config.dp_size} on {config.device} takes {count} {name}s, and "
                f"Ray has {has:g} here: lower it, or start the run from a process that has "
                "joined a larger Ray"
            )
    return ""


class RunActors:
    """The policy workers and the rollout worker of a run.

    Raises:
        ConfigError: Ray has too few CPUs or GPUs.
        WorkerLost: An actor did not start.
    """

    def __init__(
        self,
        worker_class: type[PolicyWorker],
        rollout_class: type[RolloutWorker],
        config: ClusterConfig,
    ) -> None:
        if missing := missing_resources(config, ray.cluster_resources()):  # type: ignore[no-untyped-call]
            raise ConfigError(missing)
        self._timeout_s = config.timeout_s
        self.workers = WorkerGroup(worker_class, config)
        rollout_actor = remote_class(rollout_class, config, ROLLOUT_GPU_SHARE)
        self._rollout_worker = rollout_actor.remote(config.device)

    def build(self, config: MasterConfig) -> None:
        """Create the policy on every rank, and the generation engine with the same weights."""
        self.workers.all(PolicyWorker.build, config)
        self.call_rollout_worker(RolloutWorker.build, config)

    def call_rollout_worker(
        self, method: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call a method on the rollout worker and return its result; raise as ``fetch`` does."""
        call = getattr(self._rollout_worker, method.__name__).remote(*args, **kwargs)
        result: R = fetch(call, self._timeout_s, f"the rollout worker's {method.__name__}")
        return result

    def refit(self, version: int) -> None:
        """Copy the policy's weights from rank 0 to the engine; they don't go through the driver."""
        weights, *_ = self.workers.start(PolicyWorker.weights)
        self.call_rollout_worker(RolloutWorker.refit, weights, version)

    def shutdown(self) -> None:
        """End the actors. Idempotent."""
        self.workers.shutdown()
        ray.kill(self._rollout_worker)

"""``WorkerGroup``: the ranks as Ray actors, driven together.

    group.each("logprobs", [(rows, plan), ...])  one argument list for each rank
    group.all("weights")                         the same for every rank

A call ends when all ranks have answered, when one of them fails or dies, or at the timeout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from rlconform.grpo.config import ClusterConfig
from rlconform.grpo.workers.policy_worker import PolicyWorker

#: Of a GPU, so that each rank has one to itself and a rollout actor can still share it.
_GPU_SHARE = 0.9


class WorkerLost(RuntimeError):
    """An actor of the run died, or did not answer in time."""


class WorkerGroup:
    """The ranks of one policy.

    Example:
        group = WorkerGroup(PolicyWorker, config.cluster)
        group.all("build", config)
        outputs = group.each("logprobs", rank_batches)
        group.shutdown()

    Args:
        worker_class: ``PolicyWorker`` or a subclass.
        config: How many ranks, and on what.

    Raises:
        WorkerLost: A rank did not start.
    """

    def __init__(self, worker_class: type[PolicyWorker], config: ClusterConfig) -> None:
        self.world = config.dp_size
        self._timeout_s = config.timeout_s
        on_gpu = config.device == "cuda"
        actor: Any = ray.remote(worker_class).options(
            num_cpus=1, num_gpus=_GPU_SHARE if on_gpu else 0
        )
        self._actors: list[Any] = [
            actor.remote(rank, self.world, config.device) for rank in range(self.world)
        ]
        host, port = self._get(
            self._actors[0].meeting_point.remote(self._timeout_s), "meeting_point"
        )
        self.all("join", host, port, self._timeout_s)

    def each(self, method: str, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Call the method on every rank with arguments of its own; the results by rank.

        Raises:
            WorkerLost: A rank died, or the timeout passed.
            Exception: What a rank raised.
        """
        results: list[Any] = self._get(self._start(method, arguments), method)
        return results

    def all(self, method: str, *arguments: Any) -> list[Any]:
        """Call the method on every rank with the same arguments, as ``each`` does."""
        return self.each(method, [arguments] * self.world)

    def start(self, method: str, *arguments: Any) -> list[Any]:
        """Call the method on every rank and wait for none; Ray's references to the results."""
        return self._start(method, [arguments] * self.world)

    def shutdown(self) -> None:
        """End the ranks. Idempotent."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

    def _start(self, method: str, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        return [
            getattr(actor, method).remote(*own)
            for actor, own in zip(self._actors, arguments, strict=True)
        ]

    def _get(self, calls: Any, method: str) -> Any:
        return fetch(calls, self._timeout_s, f"a policy worker's {method}")


def fetch(calls: Any, timeout_s: float, what: str) -> Any:
    """The results of actors' calls.

    Raises:
        WorkerLost: An actor died, or the timeout passed; ``what`` says whose call it was.
        Exception: What the call raised.
    """
    try:
        return ray.get(calls, timeout=timeout_s)
    except GetTimeoutError as error:
        raise WorkerLost(f"{what} gave no answer in {timeout_s:g} s (cluster.timeout_s)") from error
    except RayActorError as error:
        raise WorkerLost(f"{what}: the actor died: {error}") from error
    except RayTaskError as error:
        # Its own type and message, as if it had been raised here; the actor's trace beside it.
        raise error.cause if isinstance(error.cause, Exception) else error from error

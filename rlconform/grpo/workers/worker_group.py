"""``WorkerGroup``: the policy workers of all ranks as Ray actors, called together.

    group.all(PolicyWorker.weights)                            the same call on every rank
    group.each(PolicyWorker.logprobs, [(rows, packing), ...])  one tuple of arguments per rank

A call blocks until all ranks have answered, a rank has failed or died, or the timeout has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from rlconform.grpo.config import ClusterConfig
from rlconform.grpo.failures import WorkerDied, WorkerLost, first_line
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.rank_layout import RankLayout

P = ParamSpec("P")
R = TypeVar("R")


class WorkerGroup:
    """The ranks of one policy; ``WorkerLost`` if a rank did not start.

    There are ``cluster.dp_size`` replicas of the model, each on ``replica_ranks`` ranks, see
    ``workers.rank_layout``. ``placement`` has Ray's options of each rank; by default each takes a
    CPU and, on ``cuda``, a GPU, wherever they are.
    """

    def __init__(
        self,
        worker_class: type[PolicyWorker],
        config: ClusterConfig,
        placement: Sequence[Mapping[str, Any]] | None = None,
        *,
        replica_ranks: int = 1,
    ) -> None:
        self.world = config.dp_size * replica_ranks
        self._timeout_s = config.timeout_s
        anywhere = {"num_cpus": 1, "num_gpus": int(config.device == "cuda")}
        actor = ray.remote(worker_class)
        self._actors: list[Any] = [
            actor.options(**options).remote(rank, self.world, config.device)
            for rank, options in enumerate(placement or [anywhere] * self.world)
        ]
        store = self._actors[0].open_store.remote(self._timeout_s)
        host, port = self._fetch(store, PolicyWorker.open_store)
        self.all(PolicyWorker.join, host, port, self._timeout_s)

    def each(self, method: Callable[..., R], arguments: Sequence[Sequence[Any]]) -> list[R]:
        """Call the method on every rank with its own arguments; return the results by rank.

        Raises ``WorkerLost`` if a rank died or the timeout passed, or the exception of a rank.
        """
        calls = [
            getattr(actor, method.__name__).remote(*args)
            for actor, args in zip(self._actors, arguments, strict=True)
        ]
        results: list[R] = self._fetch(calls, method)
        return results

    def each_replica(
        self,
        method: Callable[..., R],
        layout: RankLayout,
        arguments: Sequence[Sequence[Any]],
    ) -> list[R]:
        """Call the method on every rank with its replica's arguments; return results by replica.

        The results are those of the ranks that write for their replicas. Errors are as in ``each``.
        """
        of_ranks = [arguments[layout.dp_rank(rank)] for rank in range(self.world)]
        results = self.each(method, of_ranks)
        return [results[rank] for rank in layout.writers]

    def all(
        self, method: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> list[R]:
        """Call the method on every rank with the same arguments; otherwise it is like ``each``."""
        results: list[R] = self._fetch(self.start(method, *args, **kwargs), method)
        return results

    def start(
        self, method: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> list[Any]:
        """Call the method on every rank without waiting; return Ray's references to the results."""
        return [getattr(actor, method.__name__).remote(*args, **kwargs) for actor in self._actors]

    def shutdown(self) -> None:
        """End the ranks. Idempotent."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

    def _fetch(self, calls: Any, method: Callable[..., Any]) -> Any:
        return fetch(calls, self._timeout_s, f"a policy worker's {method.__name__}")


def fetch(calls: Any, timeout_s: float, what: str) -> Any:
    """Wait for the results of actor calls, or raise the exception that a call raised.

    ``WorkerDied`` if an actor died, ``WorkerLost`` if the timeout passed; the message begins with
    ``what``.
    """
    try:
        return ray.get(calls, timeout=timeout_s)
    except GetTimeoutError as error:
        raise WorkerLost(f"{what} gave no answer in {timeout_s:g} s (cluster.timeout_s)") from error
    except RayActorError as error:
        raise WorkerDied(f"{what}: the actor died: {first_line(error)}") from error
    except RayTaskError as error:
        # Raise the original exception type; the chained RayTaskError shows the actor's traceback.
        raise error.cause if isinstance(error.cause, Exception) else error from error

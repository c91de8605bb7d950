"""The Ray actors of a run: policy workers (ranks), rollout workers, and perhaps reward workers.

    driver ── build, weights ──▶ policy workers (ranks) ◀── collectives ──▶ each other
           ── collect, refit ──▶ rollout workers ◀── weights of rank 0, through Ray's object store
           ◀── digests of the weights that rank 0 sent and that each rollout worker holds ──┘
           ── start_on_rollout_worker ──▶ a thread of the rollout worker, several at once
           ── build ──▶ reward workers ◀── rows to score ── rollout workers

Starting actors takes seconds, mostly for imports, and ``build`` is quick. Therefore several runs
can use the same actors. Every call blocks the driver until the actors have answered, except
``start_on_rollout_worker``, which returns Ray's reference at once.

A rollout worker that has died is called no more, and the run goes on with the others; its death is
written into the event log. Without a rollout worker, or a rank, the run ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import ray

from rlconform.contract import ConfigError
from rlconform.events.schema import EventSource
from rlconform.grpo.config import ClusterConfig, MasterConfig, RewardModelConfig
from rlconform.grpo.events_actor import EventLogPlace
from rlconform.grpo.failures import TornWeights, WorkerDied
from rlconform.grpo.placement_groups import PlacementGroups, ray_nodes
from rlconform.grpo.resource_pools import plan_pools
from rlconform.grpo.rewards.reward_group import RewardGroup
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.worker_group import WorkerGroup, fetch

_LOG = logging.getLogger("rlconform.grpo")

P = ParamSpec("P")
R = TypeVar("R")

#: Threads of a rollout worker for control calls: a refit, an abort, a read of the traffic, and one
#: more, because calls of several control loops may overlap.
CONTROL_CALLS = 4


def torn_weights(version: int, sent: str, held: Mapping[int, str]) -> str:
    """Return an error message if a rollout worker's digest differs from rank 0's, else ""."""
    differing = [f"rollout worker {i} holds {own}" for i, own in held.items() if own != sent]
    if not differing:
        return ""
    return f"weights of version {version}: policy rank 0 sent {sent}, {', '.join(differing)}"


class RunActors:
    """The policy workers and the rollout workers of a run, and the reward workers if it has any.

    ``groups_in_flight`` is the number of calls of ``start_on_rollout_worker`` that each rollout
    worker runs at the same time; each takes a thread, and further calls wait for one. Threads
    beyond these keep control calls (``refit``, ``abort``, ``traffic``) from waiting.

    ``replica_ranks`` is the number of policy workers that hold one replica of the model,
    ``policy.megatron_cfg.replica_ranks``. Reward workers are started if ``reward_model`` is enabled
    and has no ``service``.

    Raises:
        ConfigError: The resource pools can't be built as configured.
        WorkerLost: An actor did not start, or others use the resources.
    """

    def __init__(
        self,
        worker_class: type[PolicyWorker],
        rollout_class: type[RolloutWorker],
        config: ClusterConfig,
        *,
        groups_in_flight: int = 1,
        reward_model: RewardModelConfig | None = None,
        replica_ranks: int = 1,
    ) -> None:
        if reward_model is not None and not reward_model.has_workers:
            reward_model = None
        self._timeout_s = config.timeout_s
        self.rollout_workers: list[Any] = []
        self._dead: set[int] = set()
        self._events = RunEvents()
        #: The living processes with open files of events, rollout workers by index.
        self._rollout_sources: dict[int, EventSource] = {}
        self._policy_sources: list[EventSource] = []
        self._other_hosts = False
        plan = plan_pools(config, reward_model, ray_nodes(), replica_ranks)
        self._pools = PlacementGroups(plan, config.timeout_s)
        try:
            rollout_actor = ray.remote(rollout_class)
            threads = groups_in_flight + CONTROL_CALLS
            self.rollout_workers = [
                rollout_actor.options(**options).remote(config.device)
                for options in self._pools.options("rollout", max_concurrency=threads)
            ]
            #: The reward workers, if the run has any.
            self.reward_group: RewardGroup | None = None
            if reward_model is not None:
                placement = self._pools.options("reward")
                self.reward_group = RewardGroup(reward_model, config, placement)
            self.workers = WorkerGroup(
                worker_class, config, self._pools.options("train"), replica_ranks=replica_ranks
            )
        except BaseException:
            self._pools.close()  # which ends the actors
            raise

    @property
    def living(self) -> list[int]:
        """The rollout workers that are not known to have died, by index."""
        return [index for index in range(len(self.rollout_workers)) if index not in self._dead]

    @property
    def event_sources(self) -> list[EventSource]:
        """The living processes with open files of events."""
        reward = self.reward_group.events.sources if self.reward_group is not None else []
        return [*self._rollout_sources.values(), *self._policy_sources, *reward]

    def build(self, config: MasterConfig) -> None:
        """Create the policy on every rank, and the generation engines with the same weights.

        Before that it loads the reward model, and gives its workers to the rollout workers. Raises
        ``WorkerDied`` if a rollout worker has died: a run begins with all of them.
        """
        reward_workers = None
        if config.reward_model.has_workers:
            if self.reward_group is None:
                raise ConfigError(
                    "reward_model.enable needs reward workers: start RunActors with "
                    "reward_model=config.reward_model"
                )
            self.reward_group.build(config)
            reward_workers = self.reward_group.handles()
        self.workers.all(PolicyWorker.build, config)
        self.call_rollout_workers(RolloutWorker.build, config, reward_workers)
        if self._dead:
            count = len(self.rollout_workers)
            raise WorkerDied(f"expected {count} rollout workers; {sorted(self._dead)} have died")
        if config.generation.backend == "http":
            self.refit(0)  # servers have weights of their own

    def call_rollout_worker(
        self, method: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call a method on the first living rollout worker and return its result.

        Raises ``WorkerLost`` if the actor died or the timeout passed, or the actor's exception.
        """
        index = next(iter(self._some_living()))
        call = self.start_on_rollout_worker(index, method, *args, **kwargs)
        try:
            result: R = self._fetch(call, method)
        except WorkerDied:
            self.rollout_worker_died(index)
            raise
        return result

    def call_rollout_workers(
        self, method: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> list[R]:
        """Call a method on every living rollout worker; return the results of those that answered.

        Raises ``WorkerDied`` if none is left, ``WorkerLost`` if the timeout passed, or the
        exception of an actor.
        """
        calls = {
            index: self.start_on_rollout_worker(index, method, *args, **kwargs)
            for index in self._some_living()
        }
        results: list[R] = list(self._answers(calls, method).values())
        return results

    def rollout_worker_died(self, index: int) -> None:
        """Call this rollout worker no more, and write that it is lost. Idempotent."""
        if index not in self._dead:
            self._dead.add(index)
            _LOG.warning("rollout worker %d has died; %d are left", index, len(self.living))
        source = self._rollout_sources.pop(index, None)
        if source is not None:
            self._events.lost([source], "it has died")

    def start_on_rollout_worker(
        self,
        index: int,
        method: Callable[Concatenate[Any, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Any:
        """Call a method on rollout worker ``index`` without waiting; return Ray's reference."""
        return getattr(self.rollout_workers[index], method.__name__).remote(*args, **kwargs)

    def open_events(self, place: EventLogPlace, events: RunEvents) -> None:
        """Open files of events in all actors, until ``close_events``."""
        self._events = events
        rollout = {
            index: self.start_on_rollout_worker(
                index, RolloutWorker.open_events, place, index, events.stamp()
            )
            for index in self._some_living()
        }
        policy = [(place, rank, events.stamp()) for rank in range(self.workers.world)]
        self._rollout_sources = self._answers(rollout, RolloutWorker.open_events)
        self._policy_sources = self.workers.each(PolicyWorker.open_events, policy)
        if self.reward_group is not None:
            self.reward_group.events.open(place, events)
        own = events.writer.source.host
        self._other_hosts = any(source.host != own for source in self.event_sources)
        self.exchange_stamps(events)

    def exchange_stamps(self, events: RunEvents) -> None:
        """Bring the clocks of the event log together: what comes next is after all so far.

        Processes of one host share a clock, and make no call.
        """
        if self._other_hosts and events.enabled:
            stamp = max(self.call_rollout_workers(RolloutWorker.exchange_stamps, events.stamp()))
            events.observe(max(self.workers.all(PolicyWorker.exchange_stamps, stamp)))

    def close_events(self) -> None:
        """Close the files of events of all actors. Idempotent."""
        if self.event_sources:
            self.call_rollout_workers(RolloutWorker.close_events)
            self.workers.all(PolicyWorker.close_events)
            if self.reward_group is not None:
                self.reward_group.events.close()
            self._rollout_sources, self._policy_sources = {}, []

    def refit(self, version: int, stamp: int = 0) -> None:
        """Copy the policy's weights from rank 0 to all engines; they don't go through the driver.

        ``stamp`` is the driver's clock of the event log. Raises ``TornWeights`` if an engine then
        holds other weights than rank 0 sent, ``WorkerDied`` if no rollout worker is left.
        """
        published = self.workers.start(PolicyWorker.published_weights, version, stamp)  # type: ignore[arg-type]
        weights, digest, sent_at = published[0]
        refits = {
            index: self.start_on_rollout_worker(
                index, RolloutWorker.refit, weights, version, sent_at
            )
            for index in self._some_living()
        }
        sent = self._fetch(digest, RolloutWorker.refit)
        held: dict[int, str] = self._answers(refits, RolloutWorker.refit)
        if torn := torn_weights(version, sent, held):
            raise TornWeights(torn)
        if self.reward_group is not None:
            self.reward_group.events.note_deaths()

    def shutdown(self) -> None:
        """End the actors, and return their resources. Idempotent."""
        self.workers.shutdown()
        for worker in self.rollout_workers:
            ray.kill(worker)
        self.rollout_workers = []
        if self.reward_group is not None:
            self.reward_group.shutdown()
        self._pools.close()

    def _some_living(self) -> list[int]:
        if living := self.living:
            return living
        raise WorkerDied("all rollout workers have died")

    def _answers(self, calls: Mapping[int, Any], method: Callable[..., Any]) -> dict[int, Any]:
        """Wait for calls by rollout worker; return the results of those that have not died."""
        answers = {}
        for index, call in calls.items():
            try:
                answers[index] = self._fetch(call, method)
            except WorkerDied:
                self.rollout_worker_died(index)
                if not self.living:
                    raise
        return answers

    def _fetch(self, calls: Any, method: Callable[..., Any]) -> Any:
        return fetch(calls, self._timeout_s, f"a rollout worker's {method.__name__}")

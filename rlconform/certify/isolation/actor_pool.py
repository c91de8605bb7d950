"""``ActorPool``: starts the Ray actors that hold attached clients, and keeps them for the session.

    pool ── start ──▶ actors      each imports torch and the target: rlconform's time
         ◀─ ready ──
         ── attach ─▶ actors ── target.open(config, bootstrap=False)    the plane's time

Actors are on the check's own host, or one after the other on each of ``hosts``.

If an actor fails, the pool ends all actors started with it: they would slow down later ones.
"""

from __future__ import annotations

import os
import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlconform._env import KEPT_ACTORS
from rlconform.backends.worker_pids import alike, next_worker_like
from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.isolation.client_actor import Answer, ClientActor
from rlconform.certify.isolation.hosts import RayHost, host_for
from rlconform.certify.isolation.remote_client import (
    ProcessDied,
    RemoteClient,
    fetch,
    remote_actor,
)
from rlconform.certify.recording.busy_time import BusyTime
from rlconform.certify.recording.recorder import TRANSPORT_S, Skipped
from rlconform.certify.recording.shorten import shorten
from rlconform.contract import Timeouts

#: How often an actor is started for a pid that another process may take.
_TRIES = 3
#: Seconds for an actor to start and to import what a client needs, even on a busy machine.
ACTOR_START_S = 120.0


class ActorsLate(Skipped):
    """A skip: rlconform's actors did not start in time, so the check can't judge the plane."""


class ActorsLateWarning(UserWarning):
    """A warning, shown as a note of the report: checks did not run because actors did not start."""


class ActorPool:
    """Actors with attached clients, started when a check needs them and kept for the session."""

    def __init__(
        self,
        spec: str,
        config: Mapping[str, Any],
        timeouts: Timeouts,
        busy_time: BusyTime,
        hosts: Sequence[RayHost] = (),
    ) -> None:
        self._spec, self._config, self._timeouts = spec, config, timeouts
        self._busy_time = busy_time
        self._hosts = hosts  # of --spread; none for this host alone
        self._kept = "" if hosts else os.environ.get(KEPT_ACTORS, "")
        self._pool: list[RemoteClient] = []
        self._taken: set[str] = set()  # names of kept actors that this pool has used
        self._started = 0
        self._late = ""  # why no more actors are started, once some did not start in time

    def take(self, count: int) -> list[RemoteClient]:
        """Return ``count`` clients, each in its own process; every check gets the same ones.

        Where the kit's server forks workers, the pids of the first and third have the same low
        bits: a plane that knows a process by these takes them for one.
        """
        self._pool = [client for client in self._pool if not client.died]
        self._pool += self.start(max(0, min(count, 2) - len(self._pool)))
        if count > 2 and len(self._pool) == 2:
            self._pool.append(self._start_like(self._pool[0]))
        self._pool += self.start(max(0, count - len(self._pool)))
        return self._pool[:count]

    def _start_like(self, other: RemoteClient) -> RemoteClient:
        """Start an actor whose pid has the low bits of another's, or any if none comes."""
        like = other.ask("its pid", 0.0, ClientActor.pid)
        for _ in range(_TRIES if not self._hosts else 0):
            if not next_worker_like(like):
                break
            (client,) = self.start(1)
            if alike(client.ask("its pid", 0.0, ClientActor.pid), like):
                return client
            client.end()  # Ray had a worker in reserve
        return self.start(1)[0]

    def start(self, count: int) -> list[RemoteClient]:
        """Start ``count`` new actors, each with an attached client. If one fails, end them all.

        Raises:
            ContractViolation: An actor did not attach within the target's start timeout.
            ActorsLate: An actor did not start in ``ACTOR_START_S``: the plane is not judged.
        """
        if self._late:
            raise ActorsLate(self._late)
        with self._busy_time.running():
            return self._start(count)

    def _start(self, count: int) -> list[RemoteClient]:
        kept = self._take_kept(count) if self._kept else []
        actors, clients = [], []
        for place in range(count):
            self._started += 1
            host = host_for(self._hosts, self._started) if self._hosts else None
            name = f"actor{self._started}" + (f" on {host.name}" if host else "")
            actor = kept[place] if kept else _new(host).remote()
            actors.append(actor)
            clients.append(RemoteClient(actor, name, self._timeouts))
        try:
            self._expect_ready(actors)
            for client in clients if self._hosts else ():
                client.measure_clock()
            self._attach(actors, clients)
        except BaseException:
            for client in clients:
                client.end()
            raise
        return clients

    def _expect_ready(self, actors: list[Any]) -> None:
        """Wait until the actors have imported the target; this time counts as rlconform's."""
        import ray  # noqa: PLC0415 - only checks of several processes need Ray

        getting_ready = [actor.get_ready.remote(self._spec) for actor in actors]
        _, late = ray.wait(getting_ready, num_returns=len(actors), timeout=ACTOR_START_S)
        if late:
            self._late = (
                f"{len(late)} of {len(actors)} processes of the kit's own did not start within "
                f"{ACTOR_START_S:g} s; the plane was not asked for anything"
            )
            warnings.warn(self._late, ActorsLateWarning, stacklevel=2)
            raise ActorsLate(self._late)
        for ready in getting_ready:
            due = "the target to be importable in another process"
            _expect_no_error(fetch(ready, TRANSPORT_S, due), due)

    def _attach(self, actors: list[Any], clients: list[RemoteClient]) -> None:
        """Open a client in each actor; the time that takes there counts as the plane's."""
        due_s = self._timeouts.start
        attaching = [actor.attach.remote(dict(self._config)) for actor in actors]
        for client, attached in zip(clients, attaching, strict=True):
            attach = f"{client.name} to attach with bootstrap=False within {due_s:g} s"
            try:
                answer, took = fetch(attached, due_s, attach)
            except ProcessDied as error:
                raise ContractViolation(attach, shorten(str(error), 400)) from error
            _expect_no_error(answer, attach)
            if took > due_s:
                raise ContractViolation(attach, f"a client after {took:.1f} s")

    def attach_again(self, client: RemoteClient) -> None:
        """Close the actor's client and attach a new one, as in a process that joins late."""
        with self._busy_time.running():
            client.ask("closing its client", 0.0, ClientActor.leave)
            self._attach([client.actor], [client])

    def _take_kept(self, count: int) -> list[Any]:
        """Return ``count`` actors: kept ones first, then new ones. End a kept actor that hangs."""
        import ray  # noqa: PLC0415 - only checks of several processes need Ray

        named = ray.util.list_named_actors(all_namespaces=True)
        names = {actor["name"] for actor in named if actor["namespace"] == self._kept}
        actors: list[Any] = []
        for name in sorted(names - self._taken)[:count]:
            self._taken.add(name)
            actor: Any = ray.get_actor(name, self._kept)
            try:
                fetch(actor.leave.remote(), self._timeouts.operation, "a kept actor")
            except ContractViolation:
                ray.kill(actor)
            else:
                actors.append(actor)
        while len(actors) < count:
            # In the order of their start: the first and third have pids that are alike.
            name = f"{time.time_ns()}-{uuid.uuid4().hex}"
            self._taken.add(name)
            kept = {"name": name, "namespace": self._kept, "lifetime": "detached"}
            actors.append(_new(None, **kept).remote())
        return actors

    def close(self) -> None:
        """End every actor of the pool, or keep it for the next run if the environment says so."""
        for client in self._pool:
            if self._kept and not client.died:
                with suppress(ContractViolation):  # the next run ends those that don't answer
                    client.ask("closing its client", 0.0, ClientActor.leave)
            else:
                client.end()
        self._pool = []


def _new(host: RayHost | None, **options: Any) -> Any:
    """Return Ray's actor class, to start on a host: by default on that of this process."""
    import ray  # noqa: PLC0415 - only checks of several processes need Ray
    from ray.util.scheduling_strategies import (  # noqa: PLC0415
        NodeAffinitySchedulingStrategy,
    )

    node = host.node_id if host else ray.get_runtime_context().get_node_id()
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return remote_actor().options(num_cpus=0, scheduling_strategy=there, **options)


def _expect_no_error(answer: Answer, expected: str) -> None:
    ok, result = answer
    if not ok:
        raise ContractViolation(expected, shorten("{0}: {2}".format(*result), 400))

"""Clients in other processes: Ray actors that attach to the plane, driven from the check.

    check ── RemoteClient.get_samples ──▶ actor ── client.get_samples ──▶ plane
          ◀── result or the same error ──       ◀──
    stage ── Seat.begin(role) ────────────▶ actor ── a thread that plays the role ──▶ plane
          ◀── finish: what it did ───────

An actor resolves the target by itself, exactly as a training worker would. It ends with the check's
process, unless ``KEPT_ACTORS`` names a namespace in which actors wait for the next one: they have
imported what a client needs, which is most of what starting one takes.
"""

from __future__ import annotations

import builtins
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from rlconform.certify.evidence.expect import ContractViolation
from rlconform.certify.evidence.recorder import shorten
from rlconform.certify.evidence.stopwatch import Stopwatch
from rlconform.certify.history.performer import Part, Performer, Played
from rlconform.certify.process.parcel import Sent
from rlconform.contract import CLIENT_METHODS, DataPlaneClient, Timeouts
from rlconform.sharing import KEPT_ACTORS


class ProcessDied(ContractViolation):
    """The process that used the plane ended."""


#: True with a result, or False with what was told of the error.
Answer = tuple[bool, Any]

#: Start and end of a call, s on this machine's monotonic clock, which all its processes share.
Span = tuple[float, float]


class Worker:
    """Runs in a Ray actor: one attached client and the calls made on it."""

    def __init__(self) -> None:
        self._client: DataPlaneClient | None = None
        self._performers: dict[str, Performer] = {}  # by who they play

    def attach(self, spec: str, config: Mapping[str, Any]) -> Answer:
        """Open the client."""
        from rlconform.certify.resolve import open_target  # noqa: PLC0415 - in the actor only

        try:
            self._client = open_target(spec, config, bootstrap=False)
        except Exception as error:  # noqa: BLE001 - whatever the plane raises goes to the check
            return False, told(error)
        return True, None

    def leave(self) -> None:
        """Close the client, if it can be closed, and forget it and the roles on it."""
        client, self._client = self._client, None
        for who in list(self._performers):  # a run that was cut short left them playing
            self.give_up(who)
        if client is not None:
            with suppress(Exception):  # its plane may be gone, or never have been one
                client.close()

    def begin(self, part: Part) -> None:
        """Start playing a role in a thread; this one stays free, also if a call of it hangs."""
        assert self._client is not None
        self._performers[part.who] = Performer(self._client)
        self._performers[part.who].begin(part)

    def stop(self, who: str) -> None:
        """Let the role come to its end."""
        self._performers[who].stop()

    def give_up(self, who: str) -> None:
        """Let the role make no more calls; nothing where it never began or is over."""
        performer = self._performers.pop(who, None)
        if performer is not None:
            performer.give_up()

    def finish(self, who: str, call_s: float, all_s: float) -> Played:
        """Wait for the role's end, see ``Performer.finish``."""
        return self._performers.pop(who).finish(call_s, all_s)

    def call(self, method: str, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> Sent:
        """Call the client; an ``Answer`` is sent, and the ``Span`` of the call."""
        args, kwargs = arguments
        start = time.monotonic()
        try:
            answer = True, getattr(self._client, method)(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever the plane raises goes to the check
            answer = False, told(error)
        return Sent((answer, (start, time.monotonic())))


def told(error: Exception) -> tuple[str, list[str], str]:
    """Name, bases and message of an error: one of a vendor's own class may not unpickle here."""
    return type(error).__name__, [base.__name__ for base in type(error).__mro__], str(error)


class RemoteClient:
    """The eight methods, each run in the actor."""

    def __init__(self, actor: Any, name: str, timeouts: Timeouts) -> None:
        self._actor = actor
        self._timeouts = timeouts
        self.name = name
        self.died = False
        self._calls = threading.local()  # of each thread the span of its last call
        for method in CLIENT_METHODS:
            setattr(self, method, self._remote(method))

    @contextmanager
    def measuring(self, stopwatch: Stopwatch) -> Iterator[None]:
        """Count what the plane takes of the block's call, and nothing of the way there and back.

        All of it, where no answer comes.
        """
        start, self._calls.span = time.monotonic(), None
        try:
            yield
        finally:
            stopwatch.add([self._calls.span or (start, time.monotonic())])

    def _remote(self, method: str) -> Callable[..., Any]:
        def remote(*args: Any, **kwargs: Any) -> Any:
            # a blocking claim may wait its timeout_s out before it owes an answer
            waits = float(kwargs.get("timeout_s") or 0.0) if kwargs.get("blocking") else 0.0
            deadline = waits + self._timeouts.operation
            call = self._actor.call.remote(method, Sent((args, kwargs)))
            try:
                (ok, came), self._calls.span = fetch(call, deadline, f"{self.name}.{method}")
            except ProcessDied:
                self.died = True
                raise
            if ok:
                return came
            raise rebuilt_error(*came)

        return remote

    def ask(self, method: str, arguments: tuple[Any, ...], waits: float, what: str) -> Any:
        """What the actor itself answers; one that doesn't is not used again."""
        reference = getattr(self._actor, method).remote(*arguments)
        try:
            return fetch(reference, waits + self._timeouts.operation, f"{self.name}: {what}")
        except ContractViolation:  # it is dead, or its interpreter is held by a call
            self.died = True
            raise

    def end(self) -> None:
        """End the actor; another takes its place."""
        import ray  # noqa: PLC0415 - only checks of several processes need Ray

        self.died = True
        ray.kill(self._actor)


class Seat:
    """Where an actor plays a role, in a thread. An actor has as many as are asked for."""

    def __init__(self, client: RemoteClient) -> None:
        self._client = client
        self._who = ""

    def begin(self, part: Part) -> None:
        """Start playing a role in the actor."""
        self._who = part.who
        self._client.ask("begin", (part,), 0.0, "beginning a role")

    def stop(self) -> None:
        """Let the role come to its end."""
        self._client.ask("stop", (self._who,), 0.0, "ending a role")

    def give_up(self) -> None:
        """Let the role make no more calls; one that doesn't answer is gone, or not used again."""
        if not self._client.died:
            with suppress(ContractViolation):
                self._client.ask("give_up", (self._who,), 0.0, "giving up a role")

    def finish(self, call_s: float, all_s: float) -> Played:
        """Wait for the role's end; an actor in which a call hangs is ended."""
        arguments = (self._who, call_s, all_s)
        played = self._client.ask("finish", arguments, all_s, "a role's history")
        if not played.over:
            self._client.end()
        return played  # type: ignore[no-any-return]


def fetch(reference: Any, timeout_s: float, what: str) -> Any:
    """``ray.get`` that tells a dead process from a late answer."""
    import ray  # noqa: PLC0415 - only checks of several processes need Ray

    try:
        return ray.get(reference, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError as error:
        raise ContractViolation(f"{what} to come back within {timeout_s:g} s", "nothing") from error
    except (ray.exceptions.ActorDiedError, ray.exceptions.ActorUnavailableError) as error:
        raise ProcessDied(f"{what} to come back", f"its process died: {error}") from error


def rebuilt_error(name: str, bases: list[str], message: str) -> Exception:
    """An error of the same name on the nearest builtin base, so that its kind can be judged."""
    base = next(
        known
        for known in (getattr(builtins, base, None) for base in bases)
        if isinstance(known, type) and issubclass(known, Exception)
    )
    # ``message`` is str() of the original: KeyError's own str() would put it in quotes once more
    rebuilt: Exception = type(name, (base,), {"__str__": Exception.__str__})(message)
    return rebuilt


class ActorPool:
    """Actors with attached clients, started as checks ask for them and kept for the session."""

    def __init__(
        self,
        spec: str,
        config: Mapping[str, Any],
        timeouts: Timeouts,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self._spec, self._config, self._timeouts = spec, config, timeouts
        self._stopwatch = stopwatch or Stopwatch()
        self._kept = os.environ.get(KEPT_ACTORS, "")
        self._pool: list[RemoteClient] = []
        self._taken: set[str] = set()  # names of kept actors that this pool has had
        self._started = 0

    def take(self, count: int) -> list[RemoteClient]:
        """``count`` clients in as many processes; the same ones for every check."""
        self._pool = [client for client in self._pool if not client.died]
        self._pool += self.start(max(0, count - len(self._pool)))
        return self._pool[:count]

    def start(self, count: int) -> list[RemoteClient]:
        """``count`` new actors, which attach now.

        Raises:
            ContractViolation: One did not attach within the target's start timeout.
        """
        with self._stopwatch.running():
            return self._start(count)

    def _start(self, count: int) -> list[RemoteClient]:
        import ray  # noqa: PLC0415 - only checks of several processes need Ray
        from ray.util.scheduling_strategies import (  # noqa: PLC0415
            NodeAffinitySchedulingStrategy,
        )

        # On the check's own host: histories are ordered by its one clock.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        new = partial(ray.remote(Worker).options, num_cpus=0, scheduling_strategy=here)
        if self._kept:
            actors = self._take_kept(new, count)
        else:
            actors = [new().remote() for _ in range(count)]
        attaching = [actor.attach.remote(self._spec, dict(self._config)) for actor in actors]
        clients = []
        for actor, attached in zip(actors, attaching, strict=True):
            self._started += 1
            client = RemoteClient(actor, f"actor{self._started}", self._timeouts)
            attach = f"{client.name} to attach with bootstrap=False"
            try:
                ok, came = fetch(attached, self._timeouts.start, f"{client.name}: attaching")
            except ProcessDied as error:
                raise ContractViolation(attach, shorten(str(error), 400)) from error
            if not ok:
                raise ContractViolation(attach, shorten("{0}: {2}".format(*came), 400))
            clients.append(client)
        return clients

    def _take_kept(self, new: Callable[..., Any], count: int) -> list[Any]:
        """``count`` actors of those that wait, and new ones that will; one that hangs is ended."""
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
            name = uuid.uuid4().hex
            self._taken.add(name)
            kept = {"name": name, "namespace": self._kept, "lifetime": "detached"}
            actors.append(new(**kept).remote())
        return actors

    def close(self) -> None:
        """End every actor of the pool, or let it wait for the next run."""
        for client in self._pool:
            if self._kept and not client.died:
                with suppress(ContractViolation):  # the next run ends what doesn't answer
                    client.ask("leave", (), 0.0, "closing its client")
            else:
                client.end()
        self._pool = []

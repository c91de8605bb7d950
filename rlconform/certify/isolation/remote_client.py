"""Clients in other processes: Ray actors that attach to the plane, driven from the check.

    pool  ── start ───────────────────────▶ actor    imports torch and the target: the kit's time
          ── attach ──────────────────────▶ actor ── target.open ──▶ plane    the plane's time
    check ── RemoteClient.get_samples ──▶ actor ── client.get_samples ──▶ plane
          ◀── result or the same error ──       ◀──
    stage ── Seat.begin(role) ────────────▶ actor ── a thread that plays the role ──▶ plane
          ◀── finish: what it did ───────

An actor resolves the target by itself, exactly as a training worker would. It ends with the check's
process, unless ``KEPT_ACTORS`` names a namespace in which actors wait for the next one: they have
imported what a client needs, which is most of what starting one takes.

The target's deadlines are held against what the actor measures of its own calls. The start of the
actor, and the way of a call there and back, have deadlines of the kit's own.
"""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rlconform.certify.assertions.values import ContractViolation
from rlconform.certify.concurrency.workload_thread import WorkloadResult, WorkloadSpec
from rlconform.certify.recording.busy_time import BusyTime
from rlconform.certify.recording.recorder import TRANSPORT_S, call_kind
from rlconform.contract import CLIENT_METHODS, Timeouts
from rlconform.wire.serialization import RayArgument


class CallHung(ContractViolation):
    """A call in another process did not come back; ``kind`` is that of ``call_kind``."""

    def __init__(self, expected: str, got: str, kind: str = "") -> None:
        super().__init__(expected, got)
        self.kind = kind


class ProcessDied(ContractViolation):
    """The process that used the plane ended."""


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

    @property
    def last_span(self) -> tuple[float, float] | None:
        """Start and end in the actor of this thread's last call; None where no answer came."""
        return getattr(self._calls, "span", None)

    @contextmanager
    def measuring(self, stopwatch: BusyTime) -> Iterator[None]:
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
            due_s = waits + self._timeouts.operation
            call = self._actor.call.remote(method, RayArgument((args, kwargs)))
            what = f"{self.name}.{method}"
            try:
                (ok, came), span = fetch(call, due_s, what, TRANSPORT_S)
            except CallHung as hung:
                hung.kind = call_kind(method, kwargs)
                self.end()  # what is asked of it next would wait for this call
                raise
            except ProcessDied:
                self.died = True
                raise
            self._calls.span = span
            took = span[1] - span[0]
            if took > due_s:
                due = f"{what} to come back within {due_s:g} s"
                raise ContractViolation(due, f"its answer after {took:.1f} s")
            if ok:
                return came
            raise rebuilt_error(*came)

        remote.__name__ = method
        return remote

    def ask(self, method: str, arguments: tuple[Any, ...], waits: float, what: str) -> Any:
        """What the actor itself answers; one that doesn't is not used again."""
        reference = getattr(self._actor, method).remote(*arguments)
        try:
            due_s = waits + self._timeouts.operation
            return fetch(reference, due_s, f"{self.name}: {what}", TRANSPORT_S)
        except ContractViolation:  # it is dead, or its interpreter is held by a call
            self.died = True
            raise

    def end(self) -> None:
        """End the actor; another takes its place."""
        import ray  # noqa: PLC0415 - only checks of several processes need Ray

        self.died = True
        ray.kill(self._actor)


class RemoteWorkload:
    """Where an actor plays a role, in a thread. An actor has as many as are asked for."""

    def __init__(self, client: RemoteClient) -> None:
        self._client = client
        self._who = ""

    def begin(self, part: WorkloadSpec) -> None:
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

    def finish(self, call_s: float, all_s: float) -> WorkloadResult:
        """Wait for the role's end; an actor in which a call hangs is ended."""
        arguments = (self._who, call_s, all_s)
        played = self._client.ask("finish", arguments, all_s, "a role's history")
        if not played.finished:
            self._client.end()
        return played  # type: ignore[no-any-return]


def fetch(reference: Any, timeout_s: float, what: str, transport_s: float = 0.0) -> Any:
    """``ray.get`` that tells a dead process from a late answer.

    Args:
        reference: The answer.
        timeout_s: Seconds that the call may take in the actor.
        what: The call, for messages.
        transport_s: Seconds more for the way there and back, which are not the plane's.

    Raises:
        ContractViolation: Nothing came in time.
        ProcessDied: The actor's process ended.
    """
    import ray  # noqa: PLC0415 - only checks of several processes need Ray

    try:
        return ray.get(reference, timeout=timeout_s + transport_s)
    except ray.exceptions.GetTimeoutError as error:
        raise CallHung(f"{what} to come back within {timeout_s:g} s", "nothing") from error
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

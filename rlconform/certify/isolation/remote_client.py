"""``RemoteClient``: a client in a Ray actor that attaches to the plane, called from the check.

    check ── RemoteClient.get_samples ────────▶ actor ── client.get_samples ──▶ plane
          ◀── result or the same error ────────
    WorkloadRunner ── RemoteWorkload.begin ───▶ actor ── a thread runs the workload ──▶ plane
                   ◀─ finish: calls, results ──

An actor resolves the target by itself, exactly as a training worker would. It ends with the check's
process. If ``KEPT_ACTORS`` names a namespace, actors are kept there for the next process, because
importing what a client needs takes most of an actor's start.

The target's deadlines apply to the times that the actor measures of its calls. Starting the actor,
and sending a call to it and the result back, have separate deadlines, set by rlconform.
"""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.concurrency.workload_thread import WorkloadResult, WorkloadSpec
from rlconform.certify.isolation.client_actor import ClientActor
from rlconform.certify.isolation.hosts import ClockOffset
from rlconform.certify.recording.base_exceptions import is_exception
from rlconform.certify.recording.busy_time import BusyTime
from rlconform.certify.recording.call_kind import BLOCKING_CLAIM, call_kind
from rlconform.certify.recording.recorder import TRANSPORT_S
from rlconform.contract import CLIENT_METHODS, Timeouts
from rlconform.wire.serialization import RayArgument

#: The group of an actor's threads that make claims which wait.
WAITING = "waiting"

#: Most claims that can wait in one actor at the same time; checks use up to 64.
MOST_WAITING = 80

P = ParamSpec("P")
T = TypeVar("T")


class CallHung(ContractViolation):
    """A call in another process did not return; ``kind`` is its ``call_kind``."""

    kind = ""


class ProcessDied(ContractViolation):
    """The process that used the plane ended."""


def remote_actor(actor_class: type[ClientActor] = ClientActor) -> Any:
    """Return the Ray actor class, which makes claims that wait in threads of their own.

    The actor can so make other calls meanwhile.
    """
    import ray  # noqa: PLC0415 - only checks of several processes need Ray

    threads: Any = {"concurrency_groups": {WAITING: MOST_WAITING}}  # Ray does not type it
    return ray.remote(**threads)(actor_class)


class RemoteClient:
    """The eight client methods, each of which calls the client in the actor."""

    def __init__(self, actor: Any, name: str, timeouts: Timeouts) -> None:
        self.actor = actor
        self._timeouts = timeouts
        self.name = name
        self.died = False
        self._offset: ClockOffset | None = None  # None on this host, whose clock all share
        self._calls = threading.local()  # by thread, the span of its last call
        for method in CLIENT_METHODS:
            setattr(self, method, self._remote(method))

    @property
    def last_span(self) -> tuple[float, float] | None:
        """(start, end) in the actor of this thread's last call; ``None`` if it was not answered."""
        return getattr(self._calls, "span", None)

    def measure_clock(self) -> ClockOffset | None:
        """Measure the clock of a process on another host; the first time makes it one."""
        now = ClockOffset.measured(lambda: self.ask("its clock", 0.0, ClientActor.now))
        self._offset = now if self._offset is None else self._offset.joined(now)
        return self._offset

    @property
    def clock(self) -> ClockOffset | None:
        """The clock of the process's host, measured anew; ``None`` on this host."""
        return None if self._offset is None or self.died else self.measure_clock()

    @contextmanager
    def measuring(self, busy_time: BusyTime) -> Iterator[None]:
        """Count the time that the block's call takes in the actor; all of it if unanswered."""
        start, self._calls.span = time.monotonic(), None
        try:
            yield
        finally:
            busy_time.add([self._calls.span or (start, time.monotonic())])

    def _remote(self, method: str) -> Callable[..., Any]:
        def remote(*args: Any, **kwargs: Any) -> Any:
            # a blocking claim may wait for its timeout_s before it must return
            waits = float(kwargs.get("timeout_s") or 0.0) if kwargs.get("blocking") else 0.0
            due_s = waits + self._timeouts.operation
            kind = call_kind(method, args, kwargs)
            group = WAITING if kind == BLOCKING_CLAIM else None
            method_of_actor = self.actor.call.options(concurrency_group=group)
            call = method_of_actor.remote(method, RayArgument((args, kwargs)))
            what = f"{self.name}.{method}"
            try:
                (ok, result), span = fetch(call, due_s, what)
            except CallHung as hung:
                hung.kind = kind
                self.end()  # its next call would wait for this one
                raise
            except ProcessDied:
                self.died = True
                raise
            self._calls.span = span if self._offset is None else self._offset.here(span)
            took = span[1] - span[0]
            if took > due_s:
                due = f"{what} to come back within {due_s:g} s"
                raise ContractViolation(due, f"its answer after {took:.1f} s")
            if ok:
                return result
            name, bases, text = result
            if not is_exception(bases):
                due = f"{what} to return, or to raise an Exception"
                raise ContractViolation(due, f"{name}: {text}")
            raise rebuilt_error(name, bases, text)

        remote.__name__ = method
        return remote

    def ask(
        self,
        what: str,
        waits_s: float,
        method: Callable[Concatenate[ClientActor, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return the result of a method of the actor itself; do not use an actor again that fails.

        The method may wait ``waits_s`` in addition to the target's ``operation``.
        """
        reference = getattr(self.actor, method.__name__).remote(*args, **kwargs)
        due_s = waits_s + self._timeouts.operation
        try:
            result: T = fetch(reference, due_s, f"{self.name}: {what}")
        except ContractViolation:  # it is dead, or a call holds its interpreter
            self.died = True
            raise
        return result

    def end(self) -> None:
        """End the actor; the pool starts another one when a check needs it."""
        import ray  # noqa: PLC0415 - only checks of several processes need Ray

        self.died = True
        ray.kill(self.actor)


class RemoteWorkload:
    """A workload that runs in a thread of an actor; one actor can run several."""

    def __init__(self, client: RemoteClient) -> None:
        self._client = client
        self._who = ""

    def begin(self, spec: WorkloadSpec) -> None:
        """Start the workload in the actor."""
        self._who = spec.who
        self._client.ask("starting a workload", 0.0, ClientActor.begin, spec)

    def drain(self) -> tuple[list[Operation], bool]:
        """Return the workload's calls since the last ``drain``, and whether it still runs."""
        return self._client.ask("its calls", 0.0, ClientActor.drain, self._who)

    def grant(self, ids: list[str]) -> None:
        """Let the workload put these ids."""
        self._client.ask("granting ids", 0.0, ClientActor.grant, self._who, ids)

    def stop(self) -> None:
        """Ask the workload to end."""
        self._client.ask("stopping a workload", 0.0, ClientActor.stop, self._who)

    def give_up(self) -> None:
        """Forbid the workload to make more calls; give up an actor that does not answer."""
        if not self._client.died:
            with suppress(ContractViolation):
                self._client.ask("giving up a workload", 0.0, ClientActor.give_up, self._who)

    def finish(self, call_s: float, all_s: float) -> WorkloadResult:
        """Wait for the workload to end; return its result. End an actor in which a call hangs."""
        result = self._client.ask(
            "a workload's history", all_s, ClientActor.finish, self._who, call_s, all_s
        )
        clock = self._client.clock
        if clock is not None:
            calls = [clock.operation_here(op) for op in result.operations]
            result = replace(result, operations=calls)
        if not result.finished:
            self._client.end()
        return result


def fetch(reference: Any, timeout_s: float, what: str) -> Any:
    """Call ``ray.get``; raise different errors for a dead process and a late answer.

    Raises:
        CallHung: No answer within ``timeout_s`` plus ``TRANSPORT_S`` for sending call and answer.
        ProcessDied: The actor's process ended.
    """
    import ray  # noqa: PLC0415 - only checks of several processes need Ray

    try:
        return ray.get(reference, timeout=timeout_s + TRANSPORT_S)
    except ray.exceptions.GetTimeoutError as error:
        raise CallHung(f"{what} to come back within {timeout_s:g} s", "nothing") from error
    except (ray.exceptions.ActorDiedError, ray.exceptions.ActorUnavailableError) as error:
        raise ProcessDied(f"{what} to come back", f"its process died: {error}") from error


def rebuilt_error(name: str, bases: list[str], message: str) -> Exception:
    """Rebuild another process's error: its name, on its nearest builtin base, so checks test it."""
    found = (getattr(builtins, base, None) for base in bases)
    base = next(one for one in found if isinstance(one, type) and issubclass(one, Exception))
    # ``message`` is str() of the original: KeyError's own str() would put it in quotes once more
    rebuilt: Exception = type(name, (base,), {"__str__": Exception.__str__})(message)
    return rebuilt

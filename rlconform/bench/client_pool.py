"""``ClientPool``: the timed clients of one plane, a producer and several consumers.

    plane process ── begin("put", ...) ──▶ Ray actor or thread ── TimedClient.put ──▶ plane
                  ◀── result, or CallRefused, or ClientLost ──

A plane that serves several processes gets a Ray actor for each client; one that runs in a single
process gets threads of that process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rlconform.bench.timed_client import Answer, AttachedTimedClient, TimedClient
from rlconform.certify.recording.shorten import shorten
from rlconform.contract import DataPlaneClient

#: Starts a method of a timed client and returns a function that waits for the answer.
Submit = Callable[[str, tuple[Any, ...]], Callable[[float], Answer]]

#: One thread for a consumer's blocking claim, one for the call that checks whether it has begun.
_THREADS = 2


class CallRefused(Exception):
    """The plane raised or returned wrong data; other measurements can continue."""


class ClientLost(Exception):
    """A client died or hangs: nothing more can be measured on this plane."""


@dataclass(frozen=True)
class ClientHandle:
    """One timed client; each of its calls may take ``timeout_s``."""

    name: str
    submit: Submit
    timeout_s: float

    def begin(self, method: str, *arguments: Any) -> Callable[[], Any]:
        """Start the method; the returned function waits for its result and raises like ``call``."""
        answer = self.submit(method, arguments)

        def result() -> Any:
            try:
                ok, value = answer(self.timeout_s)
            except TimeoutError as error:
                late = f"{self.name}.{method} did not return in {self.timeout_s:g} s"
                raise ClientLost(late) from error
            if not ok:
                raise CallRefused(f"{self.name}.{method}: {value}")
            return value

        return result

    def call(self, method: str, *arguments: Any) -> Any:
        """Run the method and wait for its result.

        Raises:
            CallRefused: It raised; the message says what.
            ClientLost: It did not return, or its process has ended.
        """
        return self.begin(method, *arguments)()


@dataclass(frozen=True)
class ClientPool:
    """The clients of one plane.

    Attributes:
        producer, consumers: Clients that put, and clients that read and claim.
        claimers: All clients that can claim at the same time, consumers first. The producer and the
            plane's owner are idle then; using them saves two processes.
    """

    producer: ClientHandle
    consumers: list[ClientHandle]
    claimers: list[ClientHandle]


def thread_pool(owner: DataPlaneClient, claimers: int, call_s: float) -> ClientPool:
    """Clients in threads that share the owner's client."""
    submits = {name: submit_to_threads(owner) for name in _names(claimers)}
    return _pool(submits, owner, call_s)


def actor_pool(
    spec: str,
    config: Mapping[str, Any],
    owner: DataPlaneClient,
    claimers: int,
    start_s: float,
    call_s: float,
) -> ClientPool:
    """Clients in Ray actors, each attached separately.

    Raises:
        ClientLost: One did not attach within ``start_s``.
    """
    submits = {name: _submit_to_actor(spec, config) for name in _names(claimers)}
    handles = [ClientHandle(name, submit, start_s) for name, submit in submits.items()]
    for attached in [handle.begin("attached") for handle in handles]:
        attached()
    return _pool(submits, owner, call_s)


def submit_to_threads(client: DataPlaneClient) -> Submit:
    """Run the methods in threads of this process."""
    timed, threads = TimedClient(client), ThreadPoolExecutor(_THREADS)
    return lambda method, arguments: threads.submit(timed.run, method, *arguments).result


def _submit_to_actor(spec: str, config: Mapping[str, Any]) -> Submit:
    """Run the methods in a new Ray actor."""
    import ray  # noqa: PLC0415 - planes of one process need no Ray

    remote: Any = ray.remote(AttachedTimedClient)
    actor = remote.options(num_cpus=0, max_concurrency=_THREADS).remote(spec, dict(config))

    def submit(method: str, arguments: tuple[Any, ...]) -> Callable[[float], Answer]:
        reference = actor.run.remote(method, *arguments)

        def answer(timeout_s: float) -> Answer:
            try:
                return ray.get(reference, timeout=timeout_s)  # type: ignore[no-any-return]
            except ray.exceptions.GetTimeoutError:
                raise
            except ray.exceptions.RayError as error:
                # Ray's messages begin with a traceback and end with the error
                last_line = str(error).strip().splitlines()[-1]
                raise ClientLost(f"{method}: {shorten(last_line, 300)}") from error

        return answer

    return submit


def _names(claimers: int) -> list[str]:
    """The clients that ``claimers`` need in addition to the owner: at least one consumer."""
    consumers = max(1, claimers - 2)
    return ["producer", *(f"consumer{number + 1}" for number in range(consumers))]


def _pool(submits: Mapping[str, Submit], owner: DataPlaneClient, call_s: float) -> ClientPool:
    producer, *consumers = [ClientHandle(name, submit, call_s) for name, submit in submits.items()]
    owners = ClientHandle("owner", submit_to_threads(owner), call_s)
    return ClientPool(producer, consumers, [*consumers, producer, owners])

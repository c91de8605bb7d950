"""The desks of one plane: one producer and several consumers, as Ray actors or as threads.

crew.producer.call("put", ...)              # waits for the answer
waiting = crew.consumers[0].begin(...)      # begins, to be awaited later
waiting.result()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from rlconform.bench.timed_client import Answer, AttachedTimedClient, TimedClient
from rlconform.certify.recording.text import shorten
from rlconform.contract import DataPlaneClient

#: A consumer's waiting claim, and the question whether it waits.
_THREADS = 2


class Refused(Exception):
    """The plane refused a call, or answered it wrongly; it can go on with others."""


class ClientLost(Exception):
    """A desk died or hangs: nothing more can be measured on this plane."""


class Executor(Protocol):
    """Where a desk's methods run."""

    def submit(self, method: str, arguments: tuple[Any, ...]) -> Callable[[float], Answer]:
        """Begin; what comes back waits so many seconds and raises ``ClientLost``."""


@dataclass(frozen=True)
class PendingCall:
    """A method that runs at a desk."""

    what: str
    timeout_s: float
    answer: Callable[[float], Answer]

    def result(self) -> Any:
        """What the method returned.

        Raises:
            Refused: It raised; the message says what.
            DeskLost: It did not return, or its process is gone.
        """
        try:
            ok, came = self.answer(self.timeout_s)
        except TimeoutError as error:
            raise ClientLost(f"{self.what} did not come back in {self.timeout_s:g} s") from error
        if not ok:
            raise Refused(f"{self.what}: {came}")
        return came


@dataclass(frozen=True)
class ClientHandle:
    """One desk, wherever it stands; a method may take ``timeout_s``."""

    name: str
    desk: Executor
    timeout_s: float

    def begin(self, method: str, *arguments: Any) -> PendingCall:
        """Begin the method and go on."""
        return PendingCall(
            f"{self.name}.{method}", self.timeout_s, self.desk.submit(method, arguments)
        )

    def call(self, method: str, *arguments: Any) -> Any:
        """Run the method and wait for it; raises as ``Waiting.result``."""
        return self.begin(method, *arguments).result()


@dataclass(frozen=True)
class ClientPool:
    """One producer, its consumers, who read and claim, and the plane's owner.

    Attributes:
        producer, consumers: Desks with attached clients.
        claimers: All desks that can claim at the same time, consumers first. The producer and the
            owner, which have nothing else to do then, save two processes.
    """

    producer: ClientHandle
    consumers: list[ClientHandle]
    claimers: list[ClientHandle]


class ThreadExecutor:
    """A desk in threads of this process."""

    def __init__(self, client: DataPlaneClient) -> None:
        self._desk = TimedClient(client)
        self._threads = ThreadPoolExecutor(_THREADS)

    def submit(self, method: str, arguments: tuple[Any, ...]) -> Callable[[float], Answer]:
        """As ``Desks.submit``."""
        future: Future[Answer] = self._threads.submit(self._desk.run, method, *arguments)
        return future.result


class ActorExecutor:
    """A desk in a Ray actor."""

    def __init__(self, spec: str, config: Mapping[str, Any]) -> None:
        import ray  # noqa: PLC0415 - planes of one process need no Ray

        actor: Any = ray.remote(AttachedTimedClient)
        self._actor = actor.options(num_cpus=0, max_concurrency=_THREADS).remote(spec, dict(config))
        self._attached = self._actor.ready.remote()

    def await_attached(self, timeout_s: float) -> None:
        """Come back once the client is attached.

        Raises:
            DeskLost: It isn't within ``timeout_s``, or the target raised.
        """
        _fetch(self._attached, timeout_s, "attaching with bootstrap=False")

    def submit(self, method: str, arguments: tuple[Any, ...]) -> Callable[[float], Answer]:
        """As ``Desks.submit``."""
        reference = self._actor.run.remote(method, *arguments)
        return lambda timeout_s: _fetch(reference, timeout_s, method)


def _fetch(reference: Any, timeout_s: float, what: str) -> Any:
    import ray  # noqa: PLC0415 - planes of one process need no Ray

    try:
        return ray.get(reference, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError as error:
        raise TimeoutError from error
    except ray.exceptions.RayError as error:
        raise ClientLost(f"{what}: {_last_line(error)}") from error


def _last_line(error: Exception) -> str:
    """Ray's messages open with a trace and end with what happened."""
    return shorten(str(error).strip().splitlines()[-1], 300)


def thread_pool(owner: DataPlaneClient, claimers: int, call_s: float) -> ClientPool:
    """A crew that shares the owner's client, for a plane of one process."""
    return _crew({name: ThreadExecutor(owner) for name in _names(claimers)}, owner, call_s)


def actor_pool(
    spec: str,
    config: Mapping[str, Any],
    owner: DataPlaneClient,
    claimers: int,
    start_s: float,
    call_s: float,
) -> ClientPool:
    """A crew of Ray actors, each with an attached client of its own.

    Raises:
        DeskLost: One did not attach within ``start_s``.
    """
    desks = {name: ActorExecutor(spec, config) for name in _names(claimers)}
    for name, desk in desks.items():
        try:
            desk.await_attached(start_s)
        except TimeoutError as error:
            raise ClientLost(f"{name} did not attach within {start_s:g} s") from error
    return _crew(desks, owner, call_s)


def _names(claimers: int) -> list[str]:
    """Of the desks that so many claimers need beside the owner's: a consumer in any case."""
    consumers = max(1, claimers - 2)
    return ["producer", *(f"consumer{number + 1}" for number in range(consumers))]


def _crew(desks: Mapping[str, Executor], owner: DataPlaneClient, call_s: float) -> ClientPool:
    producer, *consumers = [ClientHandle(name, desk, call_s) for name, desk in desks.items()]
    owners = ClientHandle("owner", ThreadExecutor(owner), call_s)
    return ClientPool(producer, consumers, [*consumers, producer, owners])

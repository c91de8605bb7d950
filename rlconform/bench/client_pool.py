"""``ClientPool``: the timed clients of one plane, a producer and several that claim rows.

    plane process ── begin("put", ...) ──▶ Ray actor or thread ── TimedClient.put ──▶ plane
                  ◀── result, or CallRefused, or PlaneLost ──

For a plane that serves several processes, each client is in a Ray actor; for a plane that runs in
one process, clients are threads of that process.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from rlconform.bench.timed_client import Answer, TimedClient
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.target import open_target
from rlconform.contract import DataPlaneClient, Target

#: Starts a method of a timed client.
Submit = Callable[..., "Future[Answer]"]

#: One thread for a consumer's blocking claim, one for the call that checks whether it has begun.
_THREADS = 2


class CallRefused(Exception):
    """The plane raised or returned wrong data; other measurements can continue."""


class PlaneLost(Exception):
    """A client or the plane's process died or hangs: the plane can't be measured any more."""


@dataclass(frozen=True)
class ClientHandle:
    """One timed client; each of its calls may take ``timeout_s``."""

    name: str
    submit: Submit
    timeout_s: float

    def begin(self, method: str, *arguments: Any) -> Callable[[], Any]:
        """Start the method; return a function that waits for its result or raises like ``call``."""
        future = self.submit(method, *arguments)

        def result() -> Any:
            try:
                ok, value = future.result(self.timeout_s)
            except TimeoutError as error:
                late = f"{self.name}.{method} did not return in {self.timeout_s:g} s"
                raise PlaneLost(late) from error
            except Exception as error:  # its process died: `run` returns what the plane raises
                # Ray's messages begin with a traceback and end with the error
                last_line = str(error).strip().splitlines()[-1]
                raise PlaneLost(f"{method}: {shorten(last_line, 300)}") from error
            if not ok:
                raise CallRefused(f"{self.name}.{method}: {value}")
            return value

        return result

    def call(self, method: str, *arguments: Any) -> Any:
        """Run the method, wait for its result and return it.

        Raise ``CallRefused`` if the method raised, ``PlaneLost`` if it hangs or its process ended.
        """
        return self.begin(method, *arguments)()


class ClientPool(NamedTuple):
    """The clients of one plane: the one that puts, and all that can claim at the same time.

    ``claimers`` has the consumers, then the producer and the plane's owner. The last two would be
    idle otherwise; claiming with them saves two processes.
    """

    producer: ClientHandle
    claimers: list[ClientHandle]

    @property
    def consumer(self) -> ClientHandle:
        """The client that reads and claims whole batches."""
        return self.claimers[0]


def thread_pool(owner: DataPlaneClient, claimers: int, call_s: float) -> ClientPool:
    """Build a pool of clients in threads that share the owner's client."""
    return _pool(owner, claimers, call_s, lambda: submit_to_threads(owner))


def actor_pool(
    spec: str, target: Target, owner: DataPlaneClient, claimers: int, call_s: float
) -> ClientPool:
    """Build a pool of clients in Ray actors; ``PlaneLost`` if one does not attach in time."""
    import ray  # noqa: PLC0415 - planes of one process need no Ray

    from rlconform.backends.ray_runtime import ensure_ray  # noqa: PLC0415 - needs Ray

    ensure_ray()  # after the plane, which may start Ray itself; ends with this process
    remote: Any = ray.remote(TimedClient)
    attach = partial(open_target, spec, dict(target.config), bootstrap=False)

    def submit_to_actor() -> Submit:
        actor = remote.options(num_cpus=0, max_concurrency=_THREADS).remote(attach)
        return lambda *call: actor.run.remote(*call).future()

    pool = _pool(owner, claimers, call_s, submit_to_actor)
    # An actor runs its first method once its client is attached.
    starting = [replace(client, timeout_s=target.timeouts.start) for client in pool.claimers[:-1]]
    for attached in [client.begin("unload") for client in starting]:
        attached()
    return pool


def submit_to_threads(client: DataPlaneClient) -> Submit:
    """Return a function that runs the client's timed methods in threads of this process."""
    threads, timed = ThreadPoolExecutor(_THREADS), TimedClient(lambda: client)
    return lambda *call: threads.submit(timed.run, *call)


def _pool(
    owner: DataPlaneClient, claimers: int, call_s: float, new_client: Callable[[], Submit]
) -> ClientPool:
    """Build the pool: the owner, the producer, and as many consumers as ``claimers`` needs."""
    names = [*(f"consumer{number + 1}" for number in range(max(1, claimers - 2))), "producer"]
    clients = [ClientHandle(name, new_client(), call_s) for name in names]
    owners = ClientHandle("owner", submit_to_threads(owner), call_s)
    return ClientPool(clients[-1], [*clients, owners])

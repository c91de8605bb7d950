"""``TransferQueueConnection``: a connection to a running TransferQueue with a deadline per call.

    caller's thread: run(call) ──▶ event loop of TransferQueue's client ──▶ result
        └── waits; once a second checks the plane's processes, the connection and the deadline

It works around problems of TransferQueue 0.1.11: calls have no deadline, so a dead controller hangs
them and a dead storage unit delays them for ten minutes; a clear in a dead storage unit reports
success.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from rlconform.backends.transfer_queue import mooncake_master
from rlconform.contract import ClientClosed, PlaneUnavailable

Result = TypeVar("Result")

_PING_S = 5.0
#: Seconds between two checks of the plane's processes.
_LOOK_S = 1.0


class NoAnswer(PlaneUnavailable):
    """A call had no answer before its deadline, from a plane whose processes are alive."""


class TransferQueueConnection:
    """A TransferQueue client and the processes that it depends on."""

    def __init__(
        self,
        client: Any,  # TransferQueue's
        actors: list[Any],  # the controller and the storage units
        master_address: str,  # of Mooncake; empty for the other engine
        stop: Callable[[], None],  # closes the client, and the plane if this process owns it
        master: mooncake_master.MooncakeMaster | None = None,  # if this process owns it
    ) -> None:
        self.client = client
        self._actors = actors
        self._master_address = master_address
        self._stop = stop
        self._master = master
        self._closed = threading.Event()
        self._looked = time.monotonic()

    def run(self, call: Coroutine[Any, Any, Result], deadline_s: float) -> Result:
        """Run the call and return its result.

        ``NoAnswer`` if the deadline passed, ``PlaneUnavailable`` if a process of the plane died,
        ``ClientClosed`` if the connection was closed, before the call or during it.
        """
        try:
            self.check_open()
            if time.monotonic() - self._looked > _LOOK_S:
                self.check_alive()
        except BaseException:
            call.close()
            raise
        # The client's synchronous methods have no timeout, so this uses its private loop.
        future = asyncio.run_coroutine_threadsafe(call, self.client._loop)
        end = time.monotonic() + deadline_s
        try:
            while True:
                try:
                    return future.result(_LOOK_S)
                except TimeoutError as error:
                    if future.done():
                        raise PlaneUnavailable(f"TransferQueue gave up: {error}") from error
                except CancelledError as error:
                    raise ClientClosed("this client was closed during the call") from error
                self.check_open()
                self.check_alive()
                if time.monotonic() > end:
                    raise NoAnswer(f"no answer from TransferQueue in {deadline_s:g} s")
        finally:
            future.cancel()

    def check_open(self) -> None:
        """Raise ``ClientClosed`` after ``close``."""
        if self._closed.is_set():
            raise ClientClosed("this client was closed")

    def check_alive(self) -> None:
        """Raise ``PlaneUnavailable`` if a process of the plane is dead, but not if it is slow."""
        if not ray.is_initialized():
            raise PlaneUnavailable("the plane's Ray was shut down")
        try:
            ray.get([actor.get_zmq_server_info.remote() for actor in self._actors], timeout=_PING_S)
        except GetTimeoutError:
            pass
        except RayActorError as error:
            raise PlaneUnavailable("a process of TransferQueue is dead") from error
        except RayError as error:
            first_line = str(error).partition("\n")[0]
            raise PlaneUnavailable(f"Ray lost TransferQueue: {first_line}") from error
        if self._master_address and not mooncake_master.is_up(self._master_address):
            raise PlaneUnavailable("Mooncake's master is dead")
        self._looked = time.monotonic()

    def close(self) -> None:
        """Close the client, and the plane if this process owns it. Idempotent."""
        if not self._closed.is_set():
            self._closed.set()
            # Closing the package during its own calls would free memory that they use.
            ended = asyncio.run_coroutine_threadsafe(_cancel_calls(), self.client._loop)
            with suppress(TimeoutError):
                ended.result(_LOOK_S)
            self._stop()

    def controller_pids(self) -> list[int]:
        """Return the controller's pid."""
        return _pids(self._actors[:1])

    def storage_pids(self) -> list[int]:
        """Return the storage units' pids, or that of Mooncake's master, which finds the rows."""
        if self._master is None:
            return _pids(self._actors[1:])
        process = self._master.process
        return [] if process is None else [process.pid]


def _pids(actors: list[Any]) -> list[int]:
    """Return the pids of Ray actors of any class."""
    calls = [actor.__ray_call__.remote(lambda _self: os.getpid()) for actor in actors]
    return list(map(int, ray.get(calls, timeout=_PING_S)))


async def _cancel_calls() -> None:
    """Cancel all calls on this loop and wait until they have ended."""
    calls = asyncio.all_tasks() - {asyncio.current_task()}
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

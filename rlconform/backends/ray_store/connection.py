"""``ControllerConnection``: a client's connection to the controller, and the errors of its calls.

    start(name)  ──▶ Ray (unless it runs) ──▶ named Controller actor ──▶ ControllerConnection
    attach(name) ───────────────────────────▶ named Controller actor ──▶ ControllerConnection

    threads of a client ──call──▶ Controller            each call waits for its answer
    close ──cancels──▶ pending calls, and waits until no thread uses Ray

The controller belongs to the process that started the plane and ends with it. Its name is in a
fixed Ray namespace, so any job of the cluster can attach.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayActorError,
    RayError,
    TaskCancelledError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_runtime import RayRuntime, await_gone, ensure_ray, find_actor
from rlconform.backends.ray_store.controller import CONCURRENT_CLAIMS, Controller, Refusal
from rlconform.contract import CapacityExceeded, ClientClosed, PlaneUnavailable

NAMESPACE = "rlconform.ray_store"

#: Timeouts in seconds: of rows that are mapped, and of the controller's start.
_ROWS_S, _START_S = 30.0, 60.0
_STOP_S = 5.0


class ControllerConnection:
    """Calls a plane's controller, which has ``answer_s`` seconds to answer.

    ``ray_runtime`` is None in a client that attached.
    """

    def __init__(
        self, name: str, controller: Any, answer_s: float, ray_runtime: RayRuntime | None
    ) -> None:
        self._name = name
        self._controller = controller
        self._answer_s = answer_s
        self._ray_runtime = ray_runtime
        self._closed = False
        self._used = threading.Condition()
        self._in_flight = 0  # threads that use Ray now
        self._calls: set[Any] = set()  # references of calls that have no answer yet
        self._await(controller.ready.remote(), _START_S)

    def check_open(self) -> None:
        """Raise ``ClientClosed`` or ``PlaneUnavailable`` if no call can be made."""
        if self._closed:
            raise ClientClosed("this client was closed")
        if not ray.is_initialized():
            raise PlaneUnavailable("the plane's Ray was shut down")

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of the controller; raise the error with which it refuses the call, if any.

        ``PlaneUnavailable`` if the controller is dead or does not answer, ``ClientClosed`` if this
        client was closed, before or during the call.
        """
        return self.call_waiting(method, 0.0, *args)

    def call_waiting(self, method: str, wait_s: float, *args: Any) -> Any:
        """Call a method whose answer may take ``wait_s`` seconds; ``close`` cancels the call."""
        with self._using():
            reference = getattr(self._controller, method).remote(*args)
            with self._used:
                self._calls.add(reference)
                if self._closed:  # ``close`` ran before the call was registered
                    ray.cancel(reference)
            try:
                answer = self._answer(reference, wait_s + self._answer_s)
            finally:
                with self._used:
                    self._calls.discard(reference)
        if isinstance(answer, Refusal):
            raise answer.error
        return answer

    def store(self, columns: ColumnBlock) -> Any:
        """Copy the columns into the object store; return their reference."""
        with self._using():
            try:
                return ray.put(columns)
            except (ObjectStoreFullError, OutOfDiskError) as error:
                raise CapacityExceeded(
                    "the object store and its disk are full: clear rows sooner, or raise "
                    "data_plane.global_segment_size"
                ) from error

    def map(self, references: Mapping[int, Any]) -> dict[int, ColumnBlock] | None:
        """Return the columns of blocks by number, mapped and not copied if they are on this node.

        None if a block is gone, because its rows were cleared or compacted. ``PlaneUnavailable`` if
        a block is lost, or does not arrive in time.
        """
        try:
            blocks = self._fetch(list(references.values()))
        except ObjectLostError:
            return self._rescued(references)
        return dict(zip(references, blocks, strict=True))

    def close(self) -> None:
        """Detach from the plane; in the owner, end the plane. Idempotent."""
        with self._used:
            if self._closed:
                return
            self._closed = True
            calls = list(self._calls)
        if ray.is_initialized():
            for reference in calls:
                ray.cancel(reference)
            if self._ray_runtime is not None:
                self._stop()
        if self._ray_runtime is not None:
            # A call after the shutdown would make Ray start again.
            with self._used:
                self._used.wait_for(lambda: not self._in_flight, _STOP_S)
            self._ray_runtime.close()

    def controller_pids(self) -> list[int]:
        """Return the controller's pid."""
        return [self.call("pid")]

    #: The controller keeps the rows alive too.
    storage_pids = controller_pids

    def _stop(self) -> None:
        ray.kill(self._controller)
        await_gone(self._name, NAMESPACE)

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Mark Ray as in use, so that ``close`` waits; a cancelled call raises ``ClientClosed``."""
        with self._used:
            self.check_open()
            self._in_flight += 1
        try:
            yield
        except (PlaneUnavailable, TaskCancelledError) as error:
            if not self._closed:
                raise
            raise ClientClosed("this client was closed during the call") from error
        finally:
            with self._used:
                self._in_flight -= 1
                self._used.notify_all()

    def _rescued(self, references: Mapping[int, Any]) -> dict[int, ColumnBlock] | None:
        """Map blocks one by one; have the controller store lost blocks again."""
        blocks = {}
        for block, reference in references.items():
            try:
                blocks[block] = self._fetch(reference)
            except ObjectLostError:
                kept = self.call("rescue", block, [reference])
                if not kept:
                    return None
                try:
                    blocks[block] = self._fetch(kept[0])
                except ObjectLostError as error:
                    raise PlaneUnavailable(
                        "the rows are lost with the process that stored them"
                    ) from error
        return blocks

    def _fetch(self, references: Any) -> Any:
        with self._using():
            return self._await(references, _ROWS_S)

    def _answer(self, reference: Any, seconds: float) -> Any:
        """Wait for a call's answer; cancel a late call, unless its answer arrives meanwhile."""
        try:
            return self._await(reference, seconds)
        except PlaneUnavailable as late:
            if not isinstance(late.__cause__, GetTimeoutError):
                raise
            ray.cancel(reference)
            try:
                return self._await(reference, _STOP_S)
            except (TaskCancelledError, PlaneUnavailable):
                raise late from None

    def _await(self, reference: Any, seconds: float) -> Any:
        try:
            return ray.get(reference, timeout=min(seconds, threading.TIMEOUT_MAX))
        except GetTimeoutError as error:
            raise PlaneUnavailable(f"no answer from the plane in {seconds:g} s") from error
        except RayActorError as error:
            raise PlaneUnavailable("the plane's controller is dead or unreachable") from error


def start(
    name: str, answer_s: float, capacity: int | None, object_store_bytes: int | None
) -> ControllerConnection:
    """Start a plane in this process's Ray, or in a local Ray that ends with the plane.

    ``PlaneUnavailable`` if a plane of this name runs already, or the plane could not be started.
    """
    ray_runtime = ensure_ray(object_store_bytes=object_store_bytes)
    started = False
    try:
        controller = (
            ray.remote(Controller)
            .options(
                name=name,
                namespace=NAMESPACE,
                num_cpus=0,
                max_concurrency=CONCURRENT_CLAIMS,
                # On the owner's node, so that losing another node does not lose all rows.
                scheduling_strategy=NodeAffinitySchedulingStrategy(
                    ray.get_runtime_context().get_node_id(), soft=False
                ),
            )
            .remote(capacity)
        )
        connection = ControllerConnection(name, controller, answer_s, ray_runtime)
        started = True
    except ValueError as error:
        raise PlaneUnavailable(
            f"this Ray cluster runs a plane {name!r} already: attach to it, close it, or give "
            f"this one another name"
        ) from error
    except RayError as error:
        raise PlaneUnavailable(f"the plane did not start: {error}") from error
    finally:
        if not started:
            ray_runtime.close()
    return connection


def attach(name: str, answer_s: float) -> ControllerConnection:
    """Attach to the plane of this name in this process's Ray, or raise ``PlaneUnavailable``."""
    if not ray.is_initialized():
        raise PlaneUnavailable("attach from a process that is connected to the plane's Ray")
    controller = find_actor(name, NAMESPACE)
    if controller is None:
        raise PlaneUnavailable(f"no plane {name!r} runs in this Ray cluster")
    return ControllerConnection(name, controller, answer_s, None)

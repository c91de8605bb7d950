"""``ControllerConnection``: a client's connection to its controller, and errors of its calls.

    start(name)  ──▶ Ray (unless there) ──▶ Controller of that name ──▶ Session
    attach(name) ──────────────────────────▶ Controller of that name ──▶ Session

The controller belongs to the process that started the plane and ends with it. Its name lives in a
namespace of its own, so that any job of the cluster can attach, and planes of different names never
meet.
"""

from __future__ import annotations

import threading
import time
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
from rlconform.backends.ray_runtime import RayRuntime, ensure_ray
from rlconform.backends.ray_store.controller import CONCURRENT_CLAIMS, Controller, Refusal
from rlconform.contract import CapacityExceeded, ClientClosed, PlaneUnavailable

NAMESPACE = "rlconform.ray_store"

#: Seconds that the controller may take to answer what it needn't wait for, and to start.
_CALL_S, _START_S = 30.0, 60.0
_STOP_S = 5.0


class ControllerConnection:
    """Calls on a plane's controller.

    Args:
        name: The plane's.
        controller: The plane's.
        ray_runtime: The owner's hold on Ray; None in an attached client.
    """

    def __init__(self, name: str, controller: Any, ray_runtime: RayRuntime | None) -> None:
        self._name = name
        self._controller = controller
        self._ray_runtime = ray_runtime
        self._closed = False
        self._used = threading.Condition()
        self._in_flight = 0  # uses of Ray
        self._calls: set[Any] = set()  # references of calls that have no answer yet
        self._await(controller.ready.remote(), _START_S)

    def check_open(self) -> None:
        """Raise unless calls can be made."""
        if self._closed:
            raise ClientClosed("this client was closed")
        if not ray.is_initialized():
            raise PlaneUnavailable("the plane's Ray was shut down")

    def call(self, method: str, *args: Any) -> Any:
        """The controller's answer; what it refuses is raised.

        Raises:
            PlaneUnavailable: It is dead, or does not answer.
            ClientClosed: This client was closed, before or during the call.
        """
        return self.call_waiting(method, 0.0, *args)

    def call_waiting(self, method: str, wait_s: float, *args: Any) -> Any:
        """``call`` for an answer that may take ``wait_s`` seconds; ``close`` ends it."""
        with self._using():
            reference = getattr(self._controller, method).remote(*args)
            with self._used:
                self._calls.add(reference)
                if self._closed:  # it closed while this call was on its way, and didn't see it
                    ray.cancel(reference)
            try:
                answer = self._answer(reference, wait_s + _CALL_S)
            finally:
                with self._used:
                    self._calls.discard(reference)
        if isinstance(answer, Refusal):
            raise answer.error
        return answer

    def store(self, columns: ColumnBlock) -> Any:
        """A reference to a copy of the columns, for the controller to map.

        Raises:
            CapacityExceeded: Neither the object store nor its disk has room.
        """
        with self._using():
            try:
                return ray.put(columns)
            except (ObjectStoreFullError, OutOfDiskError) as error:
                raise CapacityExceeded(
                    "the object store and its disk are full: clear rows sooner, or raise "
                    "data_plane.global_segment_size"
                ) from error

    def map(self, references: Mapping[int, Any]) -> dict[int, ColumnBlock] | None:
        """Parcels by their blocks' numbers, mapped and not copied where they lie on this node.

        Returns:
            None if a block is gone: its rows were cleared, or lie elsewhere now.

        Raises:
            PlaneUnavailable: One is lost, or doesn't come.
        """
        try:
            with self._using():
                blocks = self._await(list(references.values()), _CALL_S)
        except ObjectLostError:
            return self._rescued(references)
        return dict(zip(references, blocks, strict=True))

    def close(self) -> None:
        """Let go of the plane; the owner's close ends it. Idempotent."""
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
            # A call that came to a Ray that is gone would start another one.
            with self._used:
                self._used.wait_for(lambda: not self._in_flight, _STOP_S)
            self._ray_runtime.close()

    def kill_controller(self) -> None:
        """End the process that holds the index as a crash would."""
        ray.kill(self._controller)

    def kill_storage(self) -> None:
        """End the process that holds on to the rows: the same one."""
        ray.kill(self._controller)

    def _stop(self) -> None:
        ray.kill(self._controller)
        end = time.monotonic() + _STOP_S
        while _find(self._name) is not None and time.monotonic() < end:
            time.sleep(0.01)  # Ray forgets a killed actor's name a little later, and tells nobody

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Ray is in use: ``close`` waits for it, and what it cut short is ``ClientClosed``."""
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
        """What ``map`` gives, one by one, the controller putting again what is lost."""
        blocks = {}
        for block, reference in references.items():
            try:
                with self._using():
                    blocks[block] = self._await(reference, _CALL_S)
            except ObjectLostError:
                kept = self.call("rescue", block, [reference])
                if not kept:
                    return None
                try:
                    with self._using():
                        blocks[block] = self._await(kept[0], _CALL_S)
                except ObjectLostError as error:
                    raise PlaneUnavailable("the rows are lost with what held them") from error
        return blocks

    def _answer(self, reference: Any, seconds: float) -> Any:
        """The answer to a call; one that is late is called off, unless it was given meanwhile."""
        try:
            return self._await(reference, seconds)
        except PlaneUnavailable as late:
            if not isinstance(late.__cause__, GetTimeoutError):
                raise
            ray.cancel(reference)
            try:
                return self._await(reference, _STOP_S)
            except TaskCancelledError:
                raise late from None

    def _await(self, reference: Any, seconds: float) -> Any:
        try:
            return ray.get(reference, timeout=min(seconds, threading.TIMEOUT_MAX))
        except GetTimeoutError as error:
            raise PlaneUnavailable(f"no answer from the plane in {seconds:g} s") from error
        except RayActorError as error:
            raise PlaneUnavailable("the plane's controller is dead, or out of reach") from error


def start(name: str, capacity: int | None, object_store_bytes: int | None) -> ControllerConnection:
    """Start a plane in this process's Ray, or in a local one that ends with the plane.

    Raises:
        PlaneUnavailable: A plane of this name runs already, or it could not be started.
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
                # With its owner, so that no other node's loss is the loss of all rows.
                scheduling_strategy=NodeAffinitySchedulingStrategy(
                    ray.get_runtime_context().get_node_id(), soft=False
                ),
            )
            .remote(capacity)
        )
        connection = ControllerConnection(name, controller, ray_runtime)
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


def attach(name: str) -> ControllerConnection:
    """Attach to the plane of this name in this process's Ray cluster.

    Raises:
        PlaneUnavailable: There is none.
    """
    if not ray.is_initialized():
        raise PlaneUnavailable("attach from a process that is connected to the plane's Ray")
    controller = _find(name)
    if controller is None:
        raise PlaneUnavailable(f"no plane {name!r} runs in this Ray cluster")
    return ControllerConnection(name, controller, None)


def _find(name: str) -> Any:
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None

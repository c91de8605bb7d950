"""``Session``: a plane's controller as one client sees it, and the errors of calls that fail.

    start(name)  ──▶ Ray (unless there) ──▶ Controller of that name ──▶ Session
    attach(name) ──────────────────────────▶ Controller of that name ──▶ Session

The controller belongs to the process that started the plane and ends with it. Its name lives in a
namespace of its own, so that any job of the cluster can attach, and planes of different names never
meet.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any
from uuid import uuid4

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

from rlconform.backends.columns.parcel import Parcel
from rlconform.backends.ray_session import RaySession, ensure_ray
from rlconform.backends.ray_store.controller import CONCURRENT_CLAIMS, Controller, Refusal
from rlconform.contract import CapacityExceeded, ClientClosed, PlaneUnavailable

NAMESPACE = "rlconform.ray_store"

#: Seconds that the controller may take to answer what it needn't wait for, and to start.
_CALL_S, _START_S = 30.0, 60.0
_STOP_S = 5.0
_PROCESS = uuid4().hex


class Session:
    """Calls on a plane's controller.

    Args:
        name: The plane's.
        controller: The plane's.
        ray_session: The owner's hold on Ray; None in an attached client.
    """

    def __init__(self, name: str, controller: Any, ray_session: RaySession | None) -> None:
        self._name = name
        self._controller = controller
        self._ray_session = ray_session
        self._closed = False
        self._lock = threading.Lock()
        self._waiting: set[Any] = set()  # references of claims that wait
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
        """
        self.check_open()
        return _told(self._await(getattr(self._controller, method).remote(*args), _CALL_S))

    def call_waiting(self, method: str, wait_s: float, *args: Any) -> Any:
        """``call`` for an answer that may take ``wait_s`` seconds; ``close`` ends it."""
        with self._lock:
            self.check_open()
            reference = getattr(self._controller, method).remote(*args)
            self._waiting.add(reference)
        try:
            return _told(self._await(reference, wait_s + _CALL_S))
        except TaskCancelledError as error:
            raise ClientClosed("this client was closed while the claim waited") from error
        finally:
            with self._lock:
                self._waiting.discard(reference)

    def store(self, parcel: Parcel) -> Any:
        """A reference to a copy of the parcel, for the controller to map.

        Raises:
            CapacityExceeded: Neither the object store nor its disk has room.
        """
        self.check_open()
        try:
            return ray.put(parcel)
        except (ObjectStoreFullError, OutOfDiskError) as error:
            raise CapacityExceeded("the object store and the disk behind it are full") from error

    def map(self, block: int, reference: Any) -> Parcel:
        """A block's parcel, mapped and not copied where it lies on this node.

        Raises:
            PlaneUnavailable: It is lost, or doesn't come.
        """
        parcel: Parcel
        try:
            parcel = self._await(reference, _CALL_S)
        except ObjectLostError:
            (kept,) = self.call("rescue", block, [reference])
            try:
                parcel = self._await(kept, _CALL_S)
            except ObjectLostError as error:
                raise PlaneUnavailable("the rows are lost with what held them") from error
        return parcel

    def close(self) -> None:
        """Let go of the plane; the owner's close ends it. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting = list(self._waiting)
        if ray.is_initialized():
            for reference in waiting:
                ray.cancel(reference)
            if self._ray_session is not None:
                self._stop()
        if self._ray_session is not None:
            self._ray_session.close()

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

    def _await(self, reference: Any, seconds: float) -> Any:
        try:
            return ray.get(reference, timeout=min(seconds, threading.TIMEOUT_MAX))
        except GetTimeoutError as error:
            ray.cancel(reference)  # if it was not begun yet, it won't be
            raise PlaneUnavailable(f"no answer from the plane in {seconds:g} s") from error
        except RayActorError as error:
            raise PlaneUnavailable("the plane's controller is dead") from error


def start(name: str, capacity: int | None, object_store_bytes: int | None) -> Session:
    """Start a plane in this process's Ray, or in a local one that ends with the plane.

    Raises:
        PlaneUnavailable: A plane of this name runs already, or it could not be started.
    """
    ray_session = ensure_ray(object_store_bytes=object_store_bytes)
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
        session = Session(name, controller, ray_session)
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
            ray_session.close()
    return session


def attach(name: str) -> Session:
    """Attach to the plane of this name in this process's Ray cluster.

    Raises:
        PlaneUnavailable: There is none.
    """
    if not ray.is_initialized():
        raise PlaneUnavailable("attach from a process that is connected to the plane's Ray")
    controller = _find(name)
    if controller is None:
        raise PlaneUnavailable(f"no plane {name!r} runs in this Ray cluster")
    return Session(name, controller, None)


def process_id() -> str:
    """This process by a name that no other one ever had."""
    return f"{_PROCESS}-{os.getpid()}"


def _find(name: str) -> Any:
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def _told(answer: Any) -> Any:
    if isinstance(answer, Refusal):
        raise answer.error
    return answer

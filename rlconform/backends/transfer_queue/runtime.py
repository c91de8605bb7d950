"""Starts a TransferQueue, attaches to one, and stops it.

    start(cfg) ──▶ Ray (unless it runs) ──▶ Mooncake's master ──▶ controller, storage ──▶ connection
    attach()   ──▶ the running controller's configuration     ──▶ another client      ──▶ connection

It works around problems of TransferQueue 0.1.11: ``close`` in an attached process kills everybody's
controller, so an attached process creates its own client and never calls ``close``; a failed start
leaves a controller on which the next start waits for ever; Mooncake's client stays open after a
close.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

# Read when the packages are imported; they log errors that this adapter raises as exceptions.
os.environ.setdefault("TQ_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("MC_LOG_LEVEL", "ERROR")

import ray
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from ray.exceptions import RayError
from transfer_queue import interface

from rlconform.backends.config import TransferQueueConfig
from rlconform.backends.ray_runtime import RayRuntime, await_gone, ensure_ray, find_actor
from rlconform.backends.transfer_queue import mooncake_master
from rlconform.backends.transfer_queue.connection import TransferQueueConnection
from rlconform.backends.transfer_queue.sampler import RowTableSampler
from rlconform.contract import PlaneUnavailable

#: TransferQueue's names of its actors and of its storage engines.
_CONTROLLER, _NAMESPACE = "TransferQueueController", "transfer_queue"
_UNIT = "TransferQueueStorageUnit#{}"
_ENGINES = {"simple": "SimpleStorage", "mooncake_cpu": "MooncakeStore"}

_ATTACH_S = 30.0
_LOCK = threading.Lock()  # TransferQueue keeps what it starts in globals of its module


@dataclass
class OwnedPlane:
    """An owner's processes: Ray unless it was running, Mooncake's master, and TransferQueue."""

    ray_runtime: RayRuntime
    master: mooncake_master.MooncakeMaster | None = None

    def stop(self) -> None:
        """Stop everything and wait until the next plane can start."""
        client = interface._TQ_CLIENT
        try:
            if ray.is_initialized():
                tq.close()
                await_gone(_CONTROLLER, _NAMESPACE)
            elif client is not None:
                # Ray was shut down before, with its actors; only this process's client is left.
                client.close()
                interface._TQ_CLIENT = interface._TQ_STORAGE = interface._TQ_CONTROLLER = None
            if client is not None:
                _close_store(client)
        finally:
            if self.master is not None:
                self.master.stop()
            self.ray_runtime.close()


def start(cfg: TransferQueueConfig) -> TransferQueueConnection:
    """Start a plane in this process's Ray, or in a local Ray that ends with the plane.

    ``PlaneUnavailable`` if this Ray runs a TransferQueue already, or the plane did not start.
    """
    with _LOCK:
        ray_runtime = ensure_ray()
        if find_actor(_CONTROLLER, _NAMESPACE) is not None:
            raise PlaneUnavailable(
                "this Ray cluster runs a TransferQueue already: attach to it, or close it first"
            )
        owned = OwnedPlane(ray_runtime)
        with ExitStack() as undo:
            undo.callback(owned.stop)
            if cfg.backend == "mooncake_cpu":
                owned.master = mooncake_master.start_master()
            address = owned.master.address if owned.master else ""
            try:
                tq.init(_configuration(cfg, address))
            except (RuntimeError, TimeoutError, OSError, RayError) as error:
                raise PlaneUnavailable(f"TransferQueue did not start: {error}") from error
            connection = TransferQueueConnection(
                tq.get_client(), _actors(_stored()), address, owned.stop, owned.master
            )
            undo.pop_all()
        return connection


def attach() -> TransferQueueConnection:
    """Attach to the plane of this process's Ray, or raise ``PlaneUnavailable``."""
    if not ray.is_initialized():
        raise PlaneUnavailable("attach from a process that is connected to the plane's Ray")
    configuration = _stored()
    engine = configuration.backend.storage_backend
    settings = configuration.backend[engine]
    address = configuration.rlconform.master_address
    if address:
        settings.local_hostname = mooncake_master.join()
        # Rows are stored in the owner's memory only: they would be lost with another process.
        settings.global_segment_size = 0
    actors = _actors(configuration)
    try:
        client = tq.TransferQueueClient(
            f"rlconform_{os.getpid()}_{uuid4().hex[:8]}", configuration.controller.zmq_info
        )
        client.initialize_storage_manager(manager_type=engine, config=settings)
    except (RuntimeError, TimeoutError, OSError) as error:
        raise PlaneUnavailable(f"TransferQueue did not answer: {error}") from error
    return TransferQueueConnection(client, actors, address, lambda: _detach(client))


def _detach(client: Any) -> None:
    client.close()
    _close_store(client)


def _close_store(client: Any) -> None:
    """Close Mooncake's client, which TransferQueue leaves open and pinging the stopped master.

    The client stays open while a call is running, for example after the master's death: closing it
    then would crash the process.
    """
    store = getattr(getattr(client, "storage_manager", None), "storage_client", None)
    if store is not None and not client._thread.is_alive():
        store.close()


def _configuration(cfg: TransferQueueConfig, master_address: str) -> DictConfig:
    settings: dict[str, Any]
    if cfg.backend == "simple":
        settings = {
            "total_storage_size": None,  # the row tables count
            "num_data_storage_units": cfg.num_storage_units,
        }
    else:
        settings = {
            "auto_init": False,
            "metadata_server": "P2PHANDSHAKE",
            "master_server_address": master_address,
            "local_hostname": mooncake_master.join(),
            "protocol": "tcp",
            "global_segment_size": cfg.global_segment_size,
            "local_buffer_size": cfg.local_buffer_size,
        }
    engine = _ENGINES[cfg.backend]
    return OmegaConf.create(
        {
            # Without polling mode, one claim for more rows than are ready blocks the controller's
            # only thread.
            "controller": {
                "sampler": RowTableSampler(cfg.storage_capacity),
                "polling_mode": True,
            },
            "backend": {"storage_backend": engine, engine: settings},
            "rlconform": {
                "master_address": master_address,
                "namespace": ray.get_runtime_context().namespace,
                "units": cfg.num_storage_units if cfg.backend == "simple" else 0,
            },
        },
        flags={"allow_objects": True},
    )


def _stored() -> DictConfig:
    """Wait for the running plane's configuration, which its owner stores once it has started."""
    end = time.monotonic() + _ATTACH_S
    while True:
        controller = find_actor(_CONTROLLER, _NAMESPACE)
        if controller is None:
            raise PlaneUnavailable("no TransferQueue runs in this Ray cluster")
        try:
            configuration = ray.get(controller.get_config.remote(), timeout=_ATTACH_S)
        except RayError as error:
            raise PlaneUnavailable(f"TransferQueue's controller is gone: {error}") from error
        if configuration is not None:
            return cast(DictConfig, configuration)
        if time.monotonic() > end:
            raise PlaneUnavailable(f"TransferQueue did not finish starting in {_ATTACH_S:g} s")
        time.sleep(0.05)


def _actors(configuration: DictConfig) -> list[Any]:
    ours = configuration.rlconform
    try:
        units = [
            ray.get_actor(_UNIT.format(rank), namespace=ours.namespace)
            for rank in range(ours.units)
        ]
    except ValueError as error:
        raise PlaneUnavailable(f"a storage unit of TransferQueue is dead: {error}") from error
    return [find_actor(_CONTROLLER, _NAMESPACE), *units]

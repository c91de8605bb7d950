"""``ensure_ray``: the Ray that a plane or a check runs on.

    with ensure_ray() as ray_session:   # this process's Ray, or a local one of its own
        ...
    # a Ray that was there before is left as it was; one that was started here is gone

A local Ray is private: its own folder and namespace, no dashboard, no cluster found through the
environment, so that several can run side by side on one machine. Where ``SHARED_RAY`` names one, it
was started for several runs, one after another, and is joined.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any
from uuid import uuid4

import psutil
import ray

from rlconform._env import SHARED_RAY

#: Logical CPUs: three actors of a plane, and as many of a check. They needn't exist.
LOGICAL_CPUS = 16
#: Characters of a folder below which Ray's sockets still have short enough paths.
_LONGEST_HOME = 24
_OBJECT_STORE_BYTES = 128 * 2**20

#: What Ray would otherwise take from, or add to, its surroundings.
_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",  # on by itself once a token lies in the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Else whoever puts first pays for the store's pages, several times what the copy costs.
    "RAY_preallocate_plasma_memory": "1",
}


@dataclass
class RayRuntime:
    """A handle on Ray; closing it ends the Ray that it started, and no other.

    Attributes:
        folder: Where the Ray that it started keeps its files; ``None`` for one that was there.
        joined: Whether this process was not connected to the Ray that was there.
    """

    folder: str | None = None
    joined: bool = False
    _environment: dict[str, str | None] = field(default_factory=dict)

    @property
    def started(self) -> bool:
        """Whether closing this session ends Ray."""
        return self.folder is not None

    def close(self) -> None:
        """Shut down the Ray that it started and remove its files, or leave it. Idempotent."""
        if not (self.started or self.joined):
            return
        folder, self.folder, self.joined = self.folder, None, False
        atexit.unregister(self.close)
        ray.shutdown()
        _set_environment(self._environment)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> RayRuntime:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def ensure_ray(num_cpus: int = LOGICAL_CPUS, object_store_bytes: int | None = None) -> RayRuntime:
    """Use the Ray of this process if it has one, else start a local one.

    Args:
        num_cpus: Logical CPUs of a local Ray.
        object_store_bytes: Size of a local Ray's object store; 128 MiB where not given.
    """
    if ray.is_initialized():
        return RayRuntime()
    if shared := os.environ.get(SHARED_RAY):
        return _join(shared)
    # Sockets lie in this folder and a socket's path ends at 107 bytes: keep it short.
    home = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="rl", dir=home if len(home) < _LONGEST_HOME else "/tmp")
    environment = _set_environment(_ENVIRONMENT | {"RAY_ADDRESS": None})
    runtime = RayRuntime(folder, _environment=environment)
    atexit.register(runtime.close)
    start = partial(
        _init,
        "local",
        num_cpus=num_cpus,
        object_store_memory=object_store_bytes or _OBJECT_STORE_BYTES,
        include_dashboard=False,
        _temp_dir=folder,
    )
    others = {process.pid for process in psutil.Process().children(recursive=True)}
    try:
        start()
    except Exception as error:  # a node that isn't there after 30 s, however busy the machine
        if type(error) is not Exception:  # Ray has no narrower type for it; others are mistakes
            raise
        _end_children(others)
        start()
    return runtime


def _join(address: str) -> RayRuntime:
    """Connect this process to the Ray at ``address``; what it starts there ends with it."""
    environment = _set_environment(_ENVIRONMENT | {"RAY_ADDRESS": None})
    runtime = RayRuntime(joined=True, _environment=environment)
    atexit.register(runtime.close)
    _init(address)
    return runtime


def _init(address: str, **options: Any) -> None:
    ray.init(
        address=address,
        namespace=f"rlconform-{uuid4().hex[:8]}",
        log_to_driver=False,
        logging_level=logging.ERROR,
        **options,
    )


def _end_children(others: Collection[int]) -> None:
    """End what this process started, but for ``others``."""
    mine = psutil.Process().children(recursive=True)
    started = [process for process in mine if process.pid not in others]
    for process in started:
        with suppress(psutil.NoSuchProcess):  # it ended by itself meanwhile
            process.kill()
    psutil.wait_procs(started, timeout=10)


def _set_environment(values: dict[str, str | None]) -> dict[str, str | None]:
    """Set variables, ``None`` unsets one; returns what was there before."""
    before = {name: os.environ.get(name) for name in values}
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before

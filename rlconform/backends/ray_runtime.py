"""``ensure_ray``: uses this process's Ray, or starts a private local one.

    with ensure_ray() as runtime:
        ...
    # a Ray that was running before still runs; one that was started here has ended

A local Ray has its own folder and namespace, no dashboard, and ignores clusters named in the
environment, so several can run on one machine. If the environment variable ``RLCONFORM_RAY`` holds
an address, this process connects to the Ray there: one that was started for several runs, or a
cluster's (``--ray-address``), whose token is in ``RAY_AUTH_TOKEN``.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import psutil
import ray

from rlconform._env import SHARED_RAY
from rlconform.backends.lean_ray import without_extras
from rlconform.backends.ray_worker_server import forked_workers
from rlconform.contract import PlaneUnavailable

#: Logical CPUs: enough for the actors of a plane and of a check. They needn't exist physically.
_LOGICAL_CPUS = 16
#: Longest path of a temporary folder with which the paths of Ray's sockets are short enough.
_LONGEST_HOME = 24
_GONE_S = 5.0
_OBJECT_STORE_BYTES = 128 * 2**20

#: Environment variables that make Ray independent of the machine's configuration.
_ENVIRONMENT: dict[str, str | None] = {
    "RAY_ADDRESS": None,
    "RAY_AUTH_MODE": "disabled",  # enabled by a token in the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Otherwise the first puts pay for the store's page faults, several times the cost of the copy.
    "RAY_preallocate_plasma_memory": "1",
}


@dataclass
class RayRuntime:
    """A handle on Ray; closing it ends a Ray that ``ensure_ray`` started, and no other."""

    folder: str | None = None  # of the Ray that was started; None if it was already running
    joined: bool = False  # whether ``ensure_ray`` connected this process to a shared Ray
    _environment: dict[str, str | None] = field(default_factory=dict)
    _servers: Sequence[
        psutil.Process
    ] = ()  # of a Ray that was started; its workers descend of them

    @property
    def started(self) -> bool:
        """Whether closing this handle ends Ray."""
        return self.folder is not None

    def close(self) -> None:
        """End a Ray that was started and remove its files, or leave a shared Ray. Idempotent.

        It waits for the end of a started Ray's processes: on a busy machine, killed actors outlive
        ``ray.shutdown`` by seconds.
        """
        if not (self.started or self.joined):
            return
        processes = forked_workers() + _writing_below(self.folder) if self.folder else []
        folder, self.folder, self.joined = self.folder, None, False
        atexit.unregister(self.close)
        processes += [each for server in self._servers for each in _with_children(server)]
        ray.shutdown()
        _end(processes, _GONE_S)
        _set_environment(self._environment)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> RayRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ensure_ray(object_store_bytes: int | None = None) -> RayRuntime:
    """Use this process's Ray; if it has none, connect to a shared Ray or start a local one.

    A local Ray's object store has ``object_store_bytes``, 128 MiB by default. Raises
    ``PlaneUnavailable`` if Ray does not start, which may be because the machine is busy.
    """
    if ray.is_initialized():
        return RayRuntime()
    shared = os.environ.get(SHARED_RAY)
    folder = None
    if not shared:
        # Ray's sockets are in this folder, and a socket's path may have 107 bytes: keep it short.
        home = tempfile.gettempdir()
        folder = tempfile.mkdtemp(prefix="rl", dir=home if len(home) < _LONGEST_HOME else "/tmp")
    environment = _set_environment(environment_for(shared))
    runtime = RayRuntime(folder, joined=bool(shared), _environment=environment)
    atexit.register(runtime.close)
    if shared:
        _init(shared)  # this process's actors end with it
        return runtime
    start = partial(
        _init,
        "local",
        num_cpus=_LOGICAL_CPUS,
        object_store_memory=object_store_bytes or _OBJECT_STORE_BYTES,
        include_dashboard=False,
        _temp_dir=folder,
    )
    others = {process.pid for process in psutil.Process().children(recursive=True)}
    with without_extras():
        if (late := _start_in_time(start)) is not None:
            _end(_children_except(others), 0)
            late = _start_in_time(start)
    if late is not None:
        _end(_children_except(others), 0)
        runtime.close()
        raise PlaneUnavailable(f"Ray did not start, in two tries: {late}") from late
    runtime._servers = _children_except(others)
    return runtime


def environment_for(shared: str | None) -> dict[str, str | None]:
    """Return the environment variables of a local Ray, or of one at an address.

    The latter may ask for a token, which stays in the environment.
    """
    if shared and os.environ.get("RAY_AUTH_TOKEN"):
        return _ENVIRONMENT | {"RAY_AUTH_MODE": "token"}
    return _ENVIRONMENT


def find_actor(name: str, namespace: str) -> Any:
    """Return the handle of the actor of this name, or None if there is none."""
    try:
        return ray.get_actor(name, namespace=namespace)
    except ValueError:
        return None


def await_gone(name: str, namespace: str) -> None:
    """Poll until Ray has freed a killed actor's name; Ray has no event for that."""
    end = time.monotonic() + _GONE_S
    while find_actor(name, namespace) is not None and time.monotonic() < end:
        time.sleep(0.01)


def _init(address: str, **options: Any) -> None:
    ray.init(
        address=address,
        namespace=f"rlconform-{uuid4().hex[:8]}",
        log_to_driver=False,
        logging_level=logging.ERROR,
        **options,
    )


def _start_in_time(start: Callable[[], None]) -> Exception | None:
    """Start Ray; return the error if it gives up, as it does after 30 s, also on a busy machine."""
    try:
        start()
    except Exception as error:
        if type(error) is not Exception:  # Ray raises no narrower type for it
            raise
        return error
    return None


def _children_except(others: Collection[int]) -> list[psutil.Process]:
    """Return this process's children and their descendants, except those with pids ``others``."""
    mine = psutil.Process().children(recursive=True)
    return [process for process in mine if process.pid not in others]


def _with_children(process: psutil.Process) -> list[psutil.Process]:
    """Return the process and its descendants; none if it has ended."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _writing_below(folder: str) -> list[psutil.Process]:
    """Return the processes whose standard output is a file below the folder, as Ray's workers' is.

    They include workers that the server of another process has forked, which descend of none here.
    """
    found = []
    for pid in psutil.pids():
        with suppress(OSError, psutil.NoSuchProcess):  # another user's, or it has ended
            if os.readlink(f"/proc/{pid}/fd/1").startswith(f"{folder}/"):
                found.append(psutil.Process(pid))
    return found


def _end(processes: Sequence[psutil.Process], patience_s: float) -> None:
    """Wait until the processes have ended; kill those that have not after ``patience_s``."""
    _, left = psutil.wait_procs([*set(processes)], patience_s)
    for process in left:
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            process.kill()
    psutil.wait_procs(left, timeout=10)


def _set_environment(values: dict[str, str | None]) -> dict[str, str | None]:
    """Set environment variables (None unsets one) and return their previous values."""
    before = {name: os.environ.get(name) for name in values}
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before

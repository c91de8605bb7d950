"""``start_worker_server``: forks Ray's workers from a process that has imported what they need.

    this process ──fork──▶ server ──fork──▶ worker   runs Ray's own program from here on
                             ▲                 └──▶ raylet: connects as any worker does
    raylet ──▶ ray_worker ───┘  waits until the worker exists

A worker that needs torch and tensordict imports for two seconds of CPU time before it does
anything, and a certification starts dozens. A fork of the server has these modules, but none of the
plane, which the starting process must not have imported. In all unusual cases (another Python,
other variables that take effect at a start, a server that has ended) ``ray_worker`` starts the
worker as Ray does. The server ends with the process that started it.

Each worker imports Ray itself, in a tenth of a second: Ray reads its raylet's pid when it is
loaded, and a worker ends when that raylet has. A server whose modules import Ray serves the first
raylet that asks, and no other.

The socket's address is abstract, which only Linux has: it leaves no file behind, and a long folder
name can't make it too long. Nothing guards such an address, so the server asks the kernel for the
user who calls.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil

from rlconform._env import FORK_WORKERS
from rlconform._preload import preload
from rlconform.backends.ray_worker import WORKER_SERVER, address_of, start_conditions
from rlconform.backends.worker_pids import alike, use_up_pids

#: What almost all workers of planes import, and the largest packages that Ray itself imports.
NEEDED_BY_WORKERS = ("torch", "tensordict", "jsonschema", "requests")
#: Environment variable with the pid of the raylet that a worker belongs to.
_RAYLET = "RAY_RAYLET_PID"
#: prctl's option that sends a signal to the caller when its parent ends.
_PR_SET_PDEATHSIG = 1
_LARGEST_REQUEST = 1 << 18
#: How often a worker is forked for a pid that others may take.
_TRIES = 3
#: Pids of the servers that this process has started.
_SERVERS: list[int] = []


def start_worker_server(modules: Sequence[str]) -> None:
    """Fork a server, for all Rays that this process starts; its workers have the ``modules``.

    Call it before the process has threads: a fork has only the thread that forked it. Without
    Linux, or with ``RLCONFORM_FORK_RAY_WORKERS=0`` in the environment, it does nothing.
    """
    if not _wanted():
        return
    name = _new_name()
    listener = _listen(name)
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            _serve(listener, parent, modules)
        finally:
            os._exit(1)
    listener.close()
    _SERVERS.append(pid)
    os.environ[WORKER_SERVER] = name


def start_separate_server(modules: Sequence[str] = NEEDED_BY_WORKERS) -> None:
    """Start a server as a new process, if this one has threads or has imported a plane."""
    if not _wanted():
        return
    name = _new_name()
    command = [sys.executable, "-m", __name__, name, str(os.getpid()), *modules]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert server.stdout is not None
    server.stdout.readline()  # it listens
    _SERVERS.append(server.pid)
    os.environ[WORKER_SERVER] = name


def _wanted() -> bool:
    return sys.platform == "linux" and os.environ.get(FORK_WORKERS) != "0"


def _new_name() -> str:
    return f"rlconform-workers-{uuid.uuid4().hex}"


def _listen(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address_of(name))
    listener.listen(128)
    return listener


def forked_workers() -> list[psutil.Process]:
    """Return the running workers of this process's servers, and the processes they started."""
    found: list[psutil.Process] = []
    for pid in _SERVERS:
        with suppress(psutil.NoSuchProcess):
            found += psutil.Process(pid).children(recursive=True)
    return found


def _serve(listener: socket.socket, parent: int, modules: Collection[str]) -> None:
    """Fork a worker for each request, until the parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != listener.fileno():
            with suppress(OSError):  # it was the folder's own
                os.close(fd)
    _SERVERS.clear()
    conditions = start_conditions()
    ray_is_of = _raylet_of_ray(os.environ)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no worker stays behind as a zombie
    like: int | None = None
    while True:
        connection, _ = listener.accept()
        if _user_of(connection) != os.getuid():
            connection.close()
            continue
        message, files, _, _ = socket.recv_fds(connection, _LARGEST_REQUEST, 3)
        request = json.loads(message)
        if "like" in request:
            like = request["like"]
            connection.send(b"noted")
            connection.close()
            continue
        environment = request["environment"]
        possible = request["conditions"] == conditions
        possible &= ray_is_of in (None, environment.get(_RAYLET))
        if possible:
            _import(modules, environment)
            ray_is_of = _raylet_of_ray(environment)
            possible = threading.active_count() == 1
        if possible and _fork(like) == 0:
            listener.close()
            connection.close()
            _become_worker(request, files)
        like = None if possible else like
        with suppress(OSError):  # Ray has ended who asked
            connection.send(b"forked" if possible else b"refused")
        connection.close()
        for fd in files:
            os.close(fd)


def _fork(like: int | None) -> int:
    """Fork as ``os.fork`` does; try for a pid that is like another, if one is given."""
    for _ in range(_TRIES):
        if like is None:
            break
        use_up_pids(like)
        pid = os.fork()
        if alike(pid or os.getpid(), like):
            return pid
        if pid == 0:
            os._exit(0)  # another process got the pid
    return os.fork()


def _raylet_of_ray(environment: Mapping[str, str]) -> str | None:
    """Return the raylet that Ray was loaded for in this environment, or None if it isn't loaded."""
    return environment.get(_RAYLET, "") if "ray" in sys.modules else None


def _user_of(connection: socket.socket) -> int:
    """Return the id of the user whose process has connected."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = struct.unpack("3i", credentials)
    return int(user)


def _import(modules: Collection[str], environment: dict[str, str]) -> None:
    """Import the modules at the first request, in its environment: Ray reads it, if imported."""
    if not sys.modules.keys() >= {*modules}:
        _set_environment(environment)
        preload(modules)


def _become_worker(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Run Ray's program of a worker as if this process had just been started for it."""
    code = 1
    try:
        for standard, fd in enumerate(files):
            os.dup2(fd, standard)
            os.close(fd)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(request["folder"])
        _set_environment(request["environment"])
        program = request["program"]
        sys.argv = [program, *request["arguments"]]
        sys.path.insert(0, str(Path(program).parent))
        tempfile.tempdir = None
        random.seed()  # or all forks would draw the same names
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()
        runpy.run_path(program, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _set_environment(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def main() -> None:
    """Serve until the process of this pid ends: arguments NAME PID MODULES."""
    name, parent, *modules = sys.argv[1:]
    listener = _listen(name)
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _serve(listener, int(parent), modules)


if __name__ == "__main__":
    main()

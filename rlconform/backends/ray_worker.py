"""The program that Ray starts for each worker: it asks a worker server to fork the worker.

    raylet ──starts──▶ this program ──arguments, environment, files──▶ server ──forks──▶ worker
                            └── no server, or another Python: runs Ray's own program instead

It imports little, as it runs for each worker. The worker connects to the raylet by itself, so this
program ends as soon as the worker exists.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from importlib.util import find_spec

#: Environment variable with the name of the server's socket.
WORKER_SERVER = "RLCONFORM_WORKER_SERVER"
#: Variables that take effect when a process starts or loads its libraries, or that mark the
#: processes of a run (``RLCONFORM_``). If they differ from the server's, no worker is forked.
_AT_START = ("PATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TMPDIR")
#: Read whenever ``breakpoint`` is called, and set by ``ray.init``: no condition.
_AT_USE = "PYTHONBREAKPOINT"
_AT_START_PREFIXES = ("PYTHON", "LD_", "MALLOC_", "KMP_", "MKL_", "RLCONFORM_")


def start_conditions() -> dict[str, str]:
    """Return what a forked process can't change: its Python, and some environment variables."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _AT_START or name.startswith(_AT_START_PREFIXES)
    }
    for name in (WORKER_SERVER, _AT_USE):
        kept.pop(name, None)
    return kept | {"executable": sys.executable, "prefix": sys.prefix}


def address_of(name: str) -> str:
    """Return the abstract address of a server's socket."""
    return f"\0{name}"


def ask(name: str, program: str) -> bool:
    """Ask the server of this name for a worker; return whether it has forked one."""
    request = {
        "program": program,
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "conditions": start_conditions(),
    }
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.connect(address_of(name))
            socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
            return server.recv(16) == b"forked"
    except OSError:  # the server has ended
        return False


def ray_program() -> str:
    """Return the path of Ray's own program of a worker."""
    spec = find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    return os.path.join(os.path.dirname(spec.origin), "_private", "workers", "default_worker.py")


def main() -> None:
    """Start the worker."""
    name, program = os.environ.get(WORKER_SERVER, ""), ray_program()
    if not name or not ask(name, program):
        os.execv(sys.executable, [sys.executable, program, *sys.argv[1:]])


if __name__ == "__main__":
    main()

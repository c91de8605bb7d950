"""Pids that differ in their high bits only, for a plane that knows a process by the low ones.

    this process ── next_worker_like(pid) ──▶ worker server      notes the pid
    raylet ──────── asks for a worker ──────▶ worker server      uses up pids, forks the worker

Planes number writers by some bits of a pid: 10 or 12 in ids of the Snowflake kind. Two processes
with the same number then take each other's rows, which needs thousands of processes to happen by
chance. Linux numbers processes and threads from one counter, so short threads move it.
"""

from __future__ import annotations

import _thread
import json
import os
import socket
from contextlib import suppress

from rlconform.backends.ray_worker import WORKER_SERVER, address_of

#: Pids that are a multiple of this apart are alike: they have the same 12 low bits.
APART = 1 << 12


def alike(one: int, other: int) -> bool:
    """Return whether two pids have the same low bits."""
    return (one - other) % APART == 0


def next_worker_like(pid: int) -> bool:
    """Ask for a next worker whose pid is like ``pid``; return False if no server forks workers.

    Another Ray of the same server may get this worker, and Ray may have a worker in reserve: look
    at the pid of the worker that comes.
    """
    name = os.environ.get(WORKER_SERVER, "")
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address_of(name))
        server.send(json.dumps({"like": pid}).encode())
        return server.recv(16) == b"noted"
    return False


def use_up_pids(like: int) -> None:
    """Use up pids until the next one is like ``like``, unless others take it first."""
    done, used = _thread.allocate_lock(), [0]

    def note() -> None:
        used[0] = _thread.get_native_id()
        done.release()

    for _ in range(2 * APART):  # others take some; no more than this if the counter jumps
        done.acquire()
        _thread.start_new_thread(note, ())
        with done:
            if alike(used[0] + 1, like):
                return

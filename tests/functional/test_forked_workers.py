"""Workers that a worker server forks, for Rays that start and end one after another."""

from __future__ import annotations

import subprocess
import sys

import pytest

TWO_RAYS = """
import os
import ray
from rlconform.backends import ray_worker_server as servers
from rlconform.backends.ray_runtime import ensure_ray

servers.start_separate_server()
for _ in range(2):
    with ensure_ray():
        parent = ray.get(ray.remote(lambda: os.getppid()).remote(), timeout=60)
        print("forked" if parent in servers._SERVERS else "started")
"""
STOPPED_WORKER = """
import os
import signal
import psutil
import ray
from rlconform.backends.ray_runtime import ensure_ray

class Stopped:
    def pids(self):
        return os.getpid(), os.getppid()

with ensure_ray() as runtime:
    actor = ray.remote(Stopped).remote()
    pid, parent = ray.get(actor.pids.remote(), timeout=60)
    siblings = psutil.Process(os.getppid()).children()
    print("forked" if parent in {process.pid for process in siblings} else "started")
    os.kill(pid, signal.SIGSTOP)
    for server in runtime._servers:
        if server.name() == "raylet":  # as when it is late on a busy machine
            server.kill()
print("left" if psutil.pid_exists(pid) else "ended")
"""
ALIKE = """
from contextlib import closing
from rlconform.backends.ray_runtime import ensure_ray
from rlconform.backends.ray_worker_server import start_separate_server
from rlconform.backends.ray_store import TARGET
from rlconform.certify.isolation.actor_pool import ActorPool
from rlconform.certify.isolation.client_actor import ClientActor
from rlconform.certify.recording.busy_time import BusyTime

start_separate_server()
with ensure_ray(), closing(TARGET.open(TARGET.config, True)):
    pool = ActorPool("ray_store", TARGET.config, TARGET.timeouts, BusyTime())
    pids = [client.ask("its pid", 0.0, ClientActor.pid) for client in pool.take(4)]
    print(*(sum((pid - other) % 4096 == 0 for other in pids) for pid in pids))
    pool.close()
"""
ITS_SERVER = """
import subprocess
import sys
from rlconform.backends.ray_worker_server import start_separate_server

start_separate_server()
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[1]]).returncode)
"""


def lines_of(*script: str) -> list[str]:
    """Run a script in a new process, as the tests' own process has a Ray; return its lines."""
    done = subprocess.run(
        [sys.executable, "-c", *script], capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.timeout(180)
def test_a_second_ray_has_forked_workers_too() -> None:
    """A worker that took itself for one of the first raylet would end with it, and tasks wait."""
    assert lines_of(TWO_RAYS) == ["forked", "forked"]


@pytest.mark.timeout(180)
def test_a_stopped_worker_of_anothers_server_ends_with_its_ray() -> None:
    """It is no child of Ray's processes, and a raylet that was killed has not ended it."""
    first, *_, last = lines_of(ITS_SERVER, STOPPED_WORKER)  # between them Ray says what it lost
    assert (first, last) == ("forked", "ended")


@pytest.mark.timeout(180)
def test_two_of_four_actors_have_pids_with_equal_low_bits() -> None:
    """A plane that numbers writers by some bits of their pids takes these two for one."""
    assert lines_of(ALIKE)[0] == "2 1 2 1"

"""Clients: the name of their plane, waiting claims, and the Ray that they use or start."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import psutil
import pytest
import ray

from rlconform.backends.ray_runtime import RayRuntime
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import ClientClosed, ConfigError, PlaneUnavailable, UnknownPartition

from .processes import CONFIG, MARKS, SOON, rows_of

pytestmark = MARKS


def test_planes_of_one_cluster_do_not_meet(owner: RayStoreClient) -> None:
    with closing(RayStoreClient({**CONFIG, "name": "another"})) as other:
        other.register_partition("p", ["x"], 4, ["t"])
        owner.put_samples(["a"], "p", rows_of(1, 1))
        other.put_samples(["a"], "p", rows_of(2, 2)[1:])
        assert owner.get_samples(["a"], "p", ["x"])["x"].shape == (1, 1024)
        attached = RayStoreClient({**CONFIG, "name": "another"}, bootstrap=False)
        assert attached.get_samples(["a"], "p", ["x"])["x"].unique().tolist() == [1]
        other.clear_samples(None, "p")
        assert owner.claim_meta("p", "t", ["x"], 4, blocking=False).sample_ids == ["a"]
    assert owner.check_consumption_status("p", ["t"])


def test_a_name_is_one_planes_at_a_time(owner: RayStoreClient) -> None:
    with pytest.raises(PlaneUnavailable, match="another name"):
        RayStoreClient(CONFIG)
    owner.put_samples(["a"], "p", rows_of(1, 1))  # the plane with this name still works
    owner.close()
    with pytest.raises(PlaneUnavailable, match="no plane"):
        RayStoreClient(CONFIG, bootstrap=False)
    with closing(RayStoreClient(CONFIG)) as fresh, pytest.raises(UnknownPartition):
        fresh.get_samples(["a"], "p", ["x"])


def test_another_planes_block_is_refused() -> None:
    with pytest.raises(ConfigError, match="memory"):
        RayStoreClient({"enabled": True, "impl": "memory"})


def test_a_clients_close_ends_its_own_wait_at_once(owner: RayStoreClient) -> None:
    worker = RayStoreClient(CONFIG, bootstrap=False)
    with ThreadPoolExecutor(1) as pool:
        claimed = pool.submit(worker.claim_meta, "p", "t", ["x"], 1, timeout_s=600.0)
        while not ray.get(owner._connection._controller.waiting.remote("p")):
            assert not claimed.done()
        worker.close()
        with pytest.raises(ClientClosed):
            claimed.result(SOON)
    owner.put_samples(["a"], "p", rows_of(1, 1))
    assert owner.claim_meta("p", "t", ["x"], 1, timeout_s=SOON).sample_ids == ["a"]


def test_a_waiting_claim_does_not_poll(owner: RayStoreClient) -> None:
    calls = []
    whole_call = owner._connection.call_waiting
    owner._connection.call_waiting = lambda *args: calls.append(args) or whole_call(*args)
    with pytest.raises(TimeoutError):
        owner.claim_meta("p", "t", ["x"], 1, timeout_s=1.0)
    assert len(calls) == 1
    assert ray.get(owner._connection._controller.waiting.remote("p")) == 0


def test_the_controller_needs_no_torch() -> None:
    code = (
        "import sys, rlconform.backends.ray_store.controller; "
        "sys.exit('torch' in sys.modules or 'tensordict' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_local_ray_starts_no_process_that_no_plane_uses(ray_runtime: RayRuntime) -> None:
    assert ray_runtime.started
    commands = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            commands.append(" ".join(process.cmdline()))
    assert any("gcs_server" in command for command in commands)
    extras = ("dashboard.py", "monitor.py")  # of logs, and of the autoscaler
    assert [each for each in commands if any(name in each for name in extras)] == []


def test_an_owner_ends_the_ray_that_it_started_and_no_other() -> None:
    code = (
        "import ray\n"
        "from rlconform.backends.ray_runtime import ensure_ray\n"
        "from rlconform.backends.ray_store import TARGET\n"
        "owner = TARGET.open(TARGET.config, True)\n"
        "assert ray.is_initialized()\n"
        "owner.close()\n"
        "assert not ray.is_initialized()\n"
        "with ensure_ray():\n"
        "    owner = TARGET.open(TARGET.config, True)\n"
        "    owner.close()\n"
        "    assert ray.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


LATE_NODE = """
from contextlib import suppress
import psutil, ray
from ray._private import services
from rlconform.backends.ray_runtime import ensure_ray

get_node, asked = services.get_node, []

def late(*args, **how):
    asked.append(args)
    if len(asked) == 1:
        raise Exception("the node did not come up in time, as on a machine that is busy")
    return get_node(*args, **how)

def running():
    return psutil.Process().children(recursive=True)

def names():
    for process in running():
        with suppress(psutil.NoSuchProcess):
            yield process.name()

services.get_node = late
with ensure_ray():
    assert len(asked) == 2
    assert ray.get(ray.put(7), timeout=30) == 7
    assert [list(names()).count(name) for name in ("raylet", "gcs_server")] == [1, 1]
gone, left = psutil.wait_procs(running(), timeout=30)  # who was killed may go a moment later
assert not left
"""


def test_a_ray_that_does_not_come_up_is_ended_and_tried_once_more() -> None:
    subprocess.run([sys.executable, "-c", LATE_NODE], check=True, timeout=120)

"""The death of a producer, a consumer, the controller, the storage or a node, and lost objects."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

from rlconform.backends.ray_store import connection
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import PlaneUnavailable, UnknownSample

from .processes import CONFIG, MARKS, SOON, kill, rows_of, start_process

pytestmark = MARKS


def test_rows_outlive_the_process_that_put_them(owner: RayStoreClient) -> None:
    ids = [f"r{i}" for i in range(8)]
    producer = start_process()
    ray.get(producer.put.remote(ids, 512))
    kill(producer)
    # by now, memory that its death released would be overwritten
    for turn in range(12):
        other = [f"o{turn}_{i}" for i in range(8)]
        owner.put_samples(other, "p", rows_of(8, 1024))
        owner.clear_samples(other, "p")
    reader = start_process()
    assert ray.get(reader.sums.remote(ids), timeout=SOON) == [2 * i for i in range(8)]
    assert owner.get_samples(ids[3:4], "p", ["x"])["x"].unique().tolist() == [3]


def lose(owner: RayStoreClient, references: list[Any], patch: pytest.MonkeyPatch) -> None:
    """Simulate the loss of these objects, by default all, for this client."""
    whole_await = owner._connection._await

    def wait(reference: Any, seconds: float) -> Any:
        fetched_value = whole_await(reference, seconds)
        fetched = [reference] if isinstance(fetched_value, dict) else []
        if isinstance(fetched_value, list) and fetched_value and isinstance(fetched_value[0], dict):
            fetched = reference
        for lost in fetched:
            if lost in references or not references:
                raise ray.exceptions.OwnerDiedError(lost.hex(), None, "")
        return fetched_value

    patch.setattr(owner._connection, "_await", wait)


def test_an_object_that_is_lost_is_put_again_from_what_the_controller_maps(
    owner: RayStoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.put_samples(["a", "b"], "p", rows_of(2, 512))
    (at,) = owner._connection.call("locate", "p", ["b"], ["x"])
    lose(owner, [at.reference], monkeypatch)
    assert owner.get_samples(["b"], "p", ["x"])["x"].unique().tolist() == [1]
    (again,) = owner._connection.call("locate", "p", ["b"], ["x"])
    assert again.reference != at.reference


def test_bytes_that_nobody_has_any_more_are_an_error_and_no_hang(
    owner: RayStoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.put_samples(["a"], "p", rows_of(1, 512))
    lose(owner, [], monkeypatch)
    with pytest.raises(PlaneUnavailable, match="lost"):
        owner.get_samples(["a"], "p", ["x"])


def test_a_call_waits_for_the_controller_as_long_as_the_configuration_says(
    owner: RayStoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_STOP_S", 0.1)
    client = RayStoreClient({**CONFIG, "ack_timeout_ms": 300}, bootstrap=False)
    (pid,) = owner._connection.controller_pids()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(PlaneUnavailable, match=r"no answer from the plane in 0\.3 s"):
            client.put_samples(["a"], "p", rows_of(1, 1))
    finally:
        os.kill(pid, signal.SIGCONT)
    owner.put_samples(["b"], "p", rows_of(1, 1))
    client.close()


def test_a_producer_killed_before_its_commit_leaves_nothing(
    owner: RayStoreClient, tmp_path: Path
) -> None:
    owner.put_samples(["a"], "p", rows_of(1, 512))
    before = owner.usage()
    producer = start_process()
    reached = tmp_path / "reached"
    producer.put_but_never_commit.remote(["a", "b"], 2048, str(reached))
    waited = threading.Event()
    while not reached.exists():
        assert not waited.wait(0.05)
    kill(producer)
    assert owner.usage() == before
    assert owner.get_samples(["a"], "p", ["x"])["x"].shape == (1, 512 * 1024)
    with pytest.raises(UnknownSample):
        owner.get_samples(["b"], "p", ["x"])
    assert owner.claim_meta("p", "t", ["x"], 4, blocking=False).sample_ids == ["a"]


def test_a_consumer_killed_while_it_waits_takes_no_rows_along(owner: RayStoreClient) -> None:
    consumer = start_process()
    waiting = consumer.claim.remote(2)
    while not ray.get(owner._connection._controller.waiting.remote("p")):
        assert not ray.wait([waiting], timeout=0.01)[0]
    kill(consumer)
    owner.put_samples(["a", "b"], "p", rows_of(2, 1))
    assert owner.claim_meta("p", "t", ["x"], 2, timeout_s=SOON).sample_ids == ["a", "b"]


def test_a_consumer_killed_after_its_claim_loses_only_that(owner: RayStoreClient) -> None:
    owner.put_samples(["a", "b", "c"], "p", rows_of(3, 1))
    consumer = start_process()
    assert ray.get(consumer.claim.remote(2)) == ["a", "b"]
    kill(consumer)
    assert owner.claim_meta("p", "t", ["x"], 3, blocking=False).sample_ids == ["c"]
    assert owner.check_consumption_status("p", ["t"])


@pytest.mark.parametrize("part", ["controller", "storage"])
def test_a_dead_controller_is_a_typed_error_for_every_call(
    owner: RayStoreClient, part: str
) -> None:
    owner.put_samples(["a"], "p", rows_of(1, 512))
    consumer = start_process()
    elsewhere = consumer.claim.remote(4)
    with ThreadPoolExecutor(1) as pool:
        here = pool.submit(owner.claim_meta, "p", "t", ["x"], 4, timeout_s=600.0)
        while ray.get(owner._connection._controller.waiting.remote("p")) < 2:
            assert not here.done()
        control = owner.control()
        pids = control.controller_pids() if part == "controller" else control.storage_pids()
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(PlaneUnavailable):
            here.result(SOON)
    with pytest.raises(PlaneUnavailable):
        ray.get(elsewhere, timeout=SOON)
    for call in (
        lambda: owner.register_partition("p", ["x"], 1, ["t"]),
        lambda: owner.put_samples(["b"], "p", rows_of(1, 512)),
        lambda: owner.get_samples(["a"], "p", ["x"]),
        lambda: owner.claim_meta("p", "t", ["x"], 1),
        lambda: owner.check_consumption_status("p", ["t"]),
        lambda: owner.clear_samples(["a"], "p"),
    ):
        with pytest.raises(PlaneUnavailable):
            call()
    with pytest.raises(PlaneUnavailable):
        RayStoreClient(CONFIG, bootstrap=False)


TWO_NODES = """
import ray, torch
from ray.cluster_utils import Cluster
from tensordict import TensorDict
from rlconform.backends.ray_store import TARGET
from rlconform.contract import PlaneUnavailable

def start():
    head = dict(num_cpus=2, resources=dict(head=1))
    cluster = Cluster(initialize_head=True, head_node_args=head)
    return cluster, cluster.add_node(num_cpus=2, resources=dict(away=1))

try:
    cluster, away = start()
except Exception as error:  # a node that isn't up after 30 s, however busy the machine
    if type(error) not in (Exception, TimeoutError):
        raise
    cluster, away = start()
ray.init(address=cluster.address, log_to_driver=False)
owner = TARGET.open(TARGET.config, True)
owner.register_partition("p", ["x"], 8, ["t"])

@ray.remote(num_cpus=0, resources=dict(away=1))
class Producer:
    def put(self):
        client = TARGET.open(TARGET.config, False)
        client.put_samples(["a", "b"], "p", TensorDict(dict(x=torch.full((2, 2**20), 7)), [2]))
        return ray.get_runtime_context().get_node_id()

node = ray.get(Producer.remote().put.remote(), timeout=120)
assert node != ray.get_runtime_context().get_node_id()
cluster.remove_node(away, allow_graceful=False)
read = owner.get_samples(["b", "a"], "p", ["x"])["x"]
assert read.shape == (2, 2**20) and bool((read == 7).all())
owner.close()
ray.shutdown()
cluster.shutdown()
"""


def test_rows_outlive_the_node_that_they_were_put_on() -> None:
    """A separate process runs a cluster of two nodes and kills one."""
    subprocess.run([sys.executable, "-c", TWO_NODES], check=True, timeout=240)

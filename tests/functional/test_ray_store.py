"""The ray_store plane's guarantees beyond the contract: faults, wasted memory, plane names."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray._private.internal_api import memory_summary
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.backends.index import SLACK_BYTES
from rlconform.backends.ray_runtime import RayRuntime, ensure_ray
from rlconform.backends.ray_store import TARGET
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import (
    CapacityExceeded,
    ClientClosed,
    ConfigError,
    DataPlaneError,
    PlaneUnavailable,
    UnknownPartition,
    UnknownSample,
)

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("ray_store")]

MIB = 2**20
SOON = 20.0  # seconds; much longer than a call, shorter than the deadlines that would hide a hang
CONFIG: dict[str, Any] = dict(TARGET.config)


@pytest.fixture(scope="module")
def ray_runtime() -> Iterator[RayRuntime]:
    with ensure_ray() as session:
        yield session


@pytest.fixture
def owner(ray_runtime: RayRuntime) -> Iterator[RayStoreClient]:
    assert ray_runtime is not None
    client = RayStoreClient(CONFIG)
    client.register_partition("p", ["x"], 64, ["t"])
    yield client
    client.close()


class Process:
    """A Ray actor with an attached client."""

    def __init__(self) -> None:
        self.client = RayStoreClient(CONFIG, bootstrap=False)

    def ready(self) -> None:
        """Return once the client is attached."""

    def put(self, ids: list[str], kib: int) -> None:
        """Put rows of that size; each byte of a row is its index among the ids."""
        self.client.put_samples(ids, "p", rows_of(len(ids), kib))

    def put_but_never_commit(self, ids: list[str], kib: int, reached: str) -> None:
        """Store the bytes of a put, create a file, and hang instead of committing."""
        session = self.client._connection
        whole_call = session.call

        def call(method: str, *args: Any) -> Any:
            if method == "commit":
                Path(reached).touch()
                threading.Event().wait()
            return whole_call(method, *args)

        session.call = call
        self.put(ids, kib)

    def claim(self, rows: int) -> list[str]:
        """Claim rows without a timeout."""
        return self.client.claim_meta("p", "t", ["x"], rows, timeout_s=600.0).sample_ids

    def sums(self, ids: list[str]) -> list[int]:
        """The first and last byte of each row, added."""
        read = self.client.get_samples(ids, "p", ["x"])["x"]
        return (read[:, 0].long() + read[:, -1]).tolist()


def rows_of(n_rows: int, kib: int) -> TensorDict:
    values = torch.arange(n_rows, dtype=torch.uint8)
    return TensorDict({"x": values[:, None].expand(n_rows, kib * 1024)}, [n_rows])


def start_process() -> Any:
    process = ray.remote(Process).options(num_cpus=0, max_concurrency=2).remote()
    ray.get(process.ready.remote(), timeout=120)
    return process


def kill(process: Any) -> None:
    """Kill an actor's process and wait for its end; a few calls may still succeed before."""
    ray.kill(process)
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        try:
            ray.get(process.ready.remote(), timeout=SOON)
        except ray.exceptions.RayActorError:
            return
    raise AssertionError(f"the process outlives its kill by {SOON:g} s")


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
        control.kill_controller() if part == "controller" else control.kill_storage()
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


def test_waste_is_bounded_by_what_is_live(owner: RayStoreClient) -> None:
    ids = [f"r{i}" for i in range(64)]
    owner.put_samples(ids, "p", rows_of(64, 512))
    for gone in range(63):
        owner.clear_samples(ids[gone : gone + 1], "p")
        usage = owner.usage()
        assert usage.rows == 63 - gone
        assert usage.wasted_bytes < max(usage.live_bytes, SLACK_BYTES)
        left = owner.get_samples(ids[gone + 1 :], "p", ["x"])["x"]
        assert left[:, 77].tolist() == list(range(gone + 1, 64))


def test_cleared_rows_give_their_memory_back_while_neighbours_live(owner: RayStoreClient) -> None:
    ids = [f"r{i}" for i in range(64)]
    owner.put_samples(ids, "p", rows_of(64, 1024))
    owner.clear_samples(ids[:60], "p")
    waited = threading.Event()
    for _ in range(400):  # Ray frees an object shortly after its last reference is dropped
        if stored_mib() < 16:
            break
        waited.wait(0.05)
    assert stored_mib() < 16
    assert owner.get_samples(ids[60:], "p", ["x"])["x"][:, 5].tolist() == [60, 61, 62, 63]


def stored_mib() -> int:
    """Mebibytes used in the object store of this Ray."""
    summary = memory_summary(ray.get_runtime_context().gcs_address, stats_only=True)
    line = next(x for x in summary.splitlines() if "Plasma memory" in x)
    return int(line.split("usage ")[1].split(" MiB")[0])


def test_rows_are_written_anew_while_others_read_and_clear_them(owner: RayStoreClient) -> None:
    """Threads clear, overwrite and read the rows of shared blocks concurrently."""
    ids = [f"r{i}" for i in range(120)]
    owner.put_samples(ids, "p", rows_of(120, 16))
    wrong: list[str] = []

    def clear(part: int) -> None:
        for i in range(part, 120, 3):
            if i % 10:
                owner.clear_samples([ids[i]], "p")

    def overwrite() -> None:
        for turn in range(1, 20):
            some = ids[10 * (turn % 12) : 10 * (turn % 12) + 1]
            again = torch.full((1, 16 * 1024), int(some[0][1:]), dtype=torch.uint8)
            owner.put_samples(some, "p", TensorDict({"x": again}, [1]))

    def read() -> None:
        for _ in range(15):
            for i in range(0, 120, 10):
                if owner.get_samples([ids[i]], "p", ["x"])["x"].unique().tolist() != [i]:
                    wrong.append(ids[i])

    work = [*(partial(clear, part) for part in range(3)), overwrite, read]
    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(each) for each in work]:
            done.result(120)
    assert wrong == []
    usage = owner.usage()
    assert usage.rows == 12
    assert usage.wasted_bytes < max(usage.live_bytes, SLACK_BYTES)


def test_small_blocks_are_written_anew_too(owner: RayStoreClient) -> None:
    """The values are small enough for the message, but their waste is enough for a compaction."""
    ids = [f"r{i}" for i in range(3000)]
    columns = {f"f{n}": torch.arange(3000.0) + n for n in range(5)}
    owner.put_samples(ids, "p", TensorDict(columns, [3000]))
    owner.clear_samples(ids[:1600], "p")
    assert owner.usage().wasted_bytes == 0
    assert owner.get_samples(ids[1600:], "p", ["f3"])["f3"].tolist() == list(range(1603, 3003))


def test_what_was_put_is_put_though_the_rewriting_fails(
    owner: RayStoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"r{i}" for i in range(8)]
    owner.put_samples(ids, "p", rows_of(8, 512))

    def full(_parcel: object) -> None:
        raise CapacityExceeded("full")

    with monkeypatch.context() as patch:
        patch.setattr(owner._connection, "store", full)
        owner.clear_samples(ids[:5], "p")  # makes the block due for compaction
    assert owner.usage().rows == 3
    assert owner.get_samples(ids[5:], "p", ["x"])["x"][:, 9].tolist() == [5, 6, 7]
    owner.clear_samples(ids[5:7], "p")  # makes it due again
    assert owner.usage().wasted_bytes == 0
    assert owner.get_samples(ids[7:], "p", ["x"])["x"].unique().tolist() == [7]


def test_a_read_finds_rows_that_are_moved_between_its_two_looks(
    owner: RayStoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"r{i}" for i in range(8)]
    owner.put_samples(ids, "p", rows_of(8, 512))
    whole_map = owner._connection.map
    looks = []

    def moved_first(references: Any) -> Any:
        looks.append(references)
        return None if len(looks) == 1 else whole_map(references)

    monkeypatch.setattr(owner._connection, "map", moved_first)
    assert owner.get_samples(ids[2:3], "p", ["x"])["x"].unique().tolist() == [2]
    assert len(looks) == 2


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


@pytest.mark.parametrize("kib", [1, SLACK_BYTES // 1024 - 1, SLACK_BYTES // 1024, 512])
def test_small_and_large_puts_mix(owner: RayStoreClient, kib: int) -> None:
    owner.put_samples(["a"], "p", rows_of(1, kib))
    owner.put_samples(["b"], "p", rows_of(1, kib))
    owner.put_samples(["c"], "p", TensorDict({"x": torch.ones(1, 300 * 1024).byte()}, [1]))
    logs = NonTensorStack(*[NonTensorData({"turn": [i, "é"]}) for i in range(2)])
    owner.put_samples(["c", "a"], "p", TensorDict({"log": logs}, [2]))
    read = owner.get_samples(["c", "a"], "p", ["log", "x"])
    assert [row.shape for row in read["x"].unbind()] == [(300 * 1024,), (kib * 1024,)]
    assert read.get("log").tolist() == [{"turn": [0, "é"]}, {"turn": [1, "é"]}]


def test_the_capacity_counts_rows(ray_runtime: RayRuntime) -> None:
    assert ray_runtime is not None
    with closing(RayStoreClient({**CONFIG, "storage_capacity": 3})) as client:
        client.put_samples(["a", "b"], "p", rows_of(2, 1))
        with pytest.raises(CapacityExceeded):
            client.put_samples(["b", "c", "d"], "p", rows_of(3, 1))
        with pytest.raises(DataPlaneError):
            client.get_samples(["c"], "p", ["x"])
        client.put_samples(["b", "c"], "p", rows_of(2, 1))


def test_another_planes_block_is_refused() -> None:
    with pytest.raises(ConfigError, match="memory"):
        RayStoreClient({"enabled": True, "impl": "memory"})


def test_the_controller_needs_no_torch() -> None:
    code = (
        "import sys, rlconform.backends.ray_store.controller; "
        "sys.exit('torch' in sys.modules or 'tensordict' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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

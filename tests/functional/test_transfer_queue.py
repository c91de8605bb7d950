"""The TransferQueue adapter's guarantees beyond the contract, tested with the real package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import psutil
import pytest
import ray
import torch
from tensordict import TensorDict

from rlconform.backends.columns.encode import pack
from rlconform.backends.ray_runtime import RayRuntime, ensure_ray
from rlconform.backends.transfer_queue import MOONCAKE_CPU, SIMPLE, mooncake_master
from rlconform.backends.transfer_queue.client import TransferQueueClient
from rlconform.backends.transfer_queue.frame_format import encode_column
from rlconform.backends.transfer_queue.storage_batches import batch_meta, batch_of
from rlconform.contract import (
    CapacityExceeded,
    ConfigError,
    ForeignRow,
    PlaneUnavailable,
    UnknownPartition,
    UnknownSample,
)

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("transfer_queue")]

SMALL: dict[str, Any] = {
    "storage_capacity": 16,
    "global_segment_size": 64 * 2**20,
    "local_buffer_size": 32 * 2**20,
}
CONFIGS = {
    "simple": {**SIMPLE.config, **SMALL},
    "mooncake": {**MOONCAKE_CPU.config, **SMALL},
}


@pytest.fixture(scope="module")
def ray_runtime() -> Iterator[RayRuntime]:
    with ensure_ray() as session:
        yield session


@pytest.fixture(scope="class", params=CONFIGS)
def running(
    request: pytest.FixtureRequest, ray_runtime: RayRuntime
) -> Iterator[TransferQueueClient]:
    assert ray_runtime is not None
    client = TransferQueueClient(CONFIGS[request.param])
    yield client
    client.close()


@pytest.fixture
def owner(running: TransferQueueClient) -> Iterator[TransferQueueClient]:
    """A plane without rows: rows of another test would count towards the capacity."""
    yield running
    running.clear_samples(None, "rows")


def column(*values: float) -> TensorDict:
    return TensorDict({"x": torch.tensor(values)}, [len(values)])


def masters() -> list[psutil.Process]:
    """Mooncake's masters that this process started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name().startswith("mooncake_mast"):
                found.append(process)
    return found


class TestRunningPlane:
    """Tests on one plane per engine."""

    @staticmethod
    def test_bytes_of_another_row_are_never_returned(owner: TransferQueueClient) -> None:
        owner.put_samples(["mine", "theirs"], "rows", column(1.0, 2.0))
        session = owner._connection
        client = session.client
        where = session.run(client.async_kv_retrieve_meta(["mine"], "rows"), 10).global_indexes
        frame = encode_column("rows", "x", 1, ["theirs"], pack(column(1.0), 1)["x"])
        place = batch_meta("rows", where, {"x": frame.sizes})
        session.run(client.storage_manager.put_data(batch_of({"x": frame}, 1), place), 10)
        with pytest.raises(ForeignRow):
            owner.get_samples(["mine"], "rows", ["x"])
        assert owner.get_samples(["theirs"], "rows", ["x"])["x"].tolist() == [2.0]

    @staticmethod
    def test_overlapping_writers_leave_whole_puts(owner: TransferQueueClient) -> None:
        attached = TransferQueueClient(CONFIGS["simple"], bootstrap=False)
        ids = ["a", "b", "c"]
        batch = TensorDict({"x": torch.zeros(3, 4), "y": torch.zeros(3)}, [3])
        owner.put_samples(ids, "rows", batch)

        def overwrite(client: TransferQueueClient, first: int) -> None:
            for value in range(first, first + 40, 2):
                client.put_samples(ids, "rows", batch.apply(lambda leaf, v=value: leaf + v))

        writers = [
            threading.Thread(target=overwrite, args=(client, first))
            for first, client in enumerate((owner, attached))
        ]
        for writer in writers:
            writer.start()
        seen = [owner.get_samples(ids, "rows", ["x", "y"])]
        while any(writer.is_alive() for writer in writers):
            seen.append(owner.get_samples(ids, "rows", ["x", "y"]))
        for writer in writers:
            writer.join()
        seen.append(attached.get_samples(ids, "rows", ["x", "y"]))
        attached.close()
        for got in seen:
            assert len({*got["x"].flatten().tolist(), *got["y"].tolist()}) == 1
        assert seen[-1]["y"][0] in (38.0, 39.0)

    @staticmethod
    def test_capacity_is_exact_however_rows_come_and_go(owner: TransferQueueClient) -> None:
        for first in range(0, 60, 5):  # indexes are reused in another order each time
            ids = [f"r{first + i}" for i in range(16)]
            for sample_id in ids:
                owner.put_samples([sample_id], "rows", column(1.0))
            with pytest.raises(CapacityExceeded):
                owner.put_samples(["new", "newer"], "rows", column(1.0, 2.0), [{"v": 1}] * 2)
            owner.put_samples(ids[:1], "rows", column(2.0))
            with pytest.raises(UnknownSample):
                owner.get_samples(["new"], "rows", ["x"])
            owner.clear_samples(ids[::2], "rows")
            owner.clear_samples(None, "rows")

    @staticmethod
    def test_a_cluster_holds_one_plane_and_the_refusal_leaves_it_up(
        owner: TransferQueueClient,
    ) -> None:
        with pytest.raises(PlaneUnavailable):
            TransferQueueClient(CONFIGS["simple"])
        owner.put_samples(["a"], "rows", column(3.0))
        assert owner.get_samples(["a"], "rows", ["x"])["x"].tolist() == [3.0]


@pytest.mark.parametrize("engine", CONFIGS)
@pytest.mark.parametrize("victim", ["storage_pids", "controller_pids"])
def test_a_dead_process_is_named_and_a_new_plane_starts_clean(
    ray_runtime: RayRuntime, engine: str, victim: str
) -> None:
    assert ray_runtime is not None
    with closing(TransferQueueClient(CONFIGS[engine])) as first:
        first.register_partition("train", ["x"], 2, ["train"])
        first.put_samples(["a", "b"], "train", column(1.0, 2.0))
        os.kill(getattr(first.control(), victim)()[0], signal.SIGKILL)
        with pytest.raises(PlaneUnavailable):
            first.claim_meta("train", "train", ["x"], 3, timeout_s=60.0)
        with pytest.raises(PlaneUnavailable):
            first.clear_samples(["a"], "train")
    with (
        closing(TransferQueueClient(CONFIGS[engine])) as second,
        pytest.raises(UnknownPartition),
    ):
        second.claim_meta("train", "train", ["x"], 1, blocking=False)


def test_the_master_has_ports_of_its_own_and_ends_with_the_plane(ray_runtime: RayRuntime) -> None:
    assert ray_runtime is not None
    stranger = mooncake_master.start_master()
    with closing(TransferQueueClient(CONFIGS["mooncake"])):
        ports = [
            {link.laddr.port for link in master.net_connections() if link.status == "LISTEN"}
            for master in masters()
        ]
    left = [master.ppid() for master in masters()]
    stranger.stop()
    assert len(ports) == 2
    assert not ports[0] & ports[1]
    assert left == [stranger.guard.pid]
    assert masters() == []


def test_the_master_dies_with_its_owner() -> None:
    code = (
        "import os; from rlconform.backends.transfer_queue import mooncake_master;"
        "print(mooncake_master.start_master().process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False, timeout=120
    )
    with suppress(psutil.NoSuchProcess):  # it may have ended at any of these calls
        master = psutil.Process(int(done.stdout))
        psutil.wait_procs([master], timeout=10)
        assert master.status() == psutil.STATUS_ZOMBIE


SECOND_PLANE = """
import sys, torch
from tensordict import TensorDict
from rlconform.backends.transfer_queue.client import TransferQueueClient
client = TransferQueueClient({config!r})
client.put_samples(["a"], "train", TensorDict({{"x": torch.tensor([2.0])}}, [1]))
print("up", flush=True)
sys.stdin.readline()
print(client.get_samples(["a"], "train", ["x"])["x"].item(), flush=True)
client.close()
"""


@pytest.mark.parametrize("engine", CONFIGS)
def test_two_planes_on_one_machine_leave_each_other_alone(
    ray_runtime: RayRuntime, engine: str
) -> None:
    assert ray_runtime is not None
    other = subprocess.Popen(
        [sys.executable, "-c", SECOND_PLANE.format(config=CONFIGS[engine])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with closing(TransferQueueClient(CONFIGS[engine])) as mine:
        assert other.stdout is not None
        assert other.stdout.readline() == "up\n"
        mine.put_samples(["a"], "train", column(1.0))
        assert mine.get_samples(["a"], "train", ["x"])["x"].tolist() == [1.0]
    out, _ = other.communicate("\n", timeout=120)
    assert out == "2.0\n"
    assert other.returncode == 0


def test_a_session_leaves_the_ray_that_was_there(ray_runtime: RayRuntime) -> None:
    assert ray_runtime.started
    with ensure_ray() as inner:
        assert not inner.started
    assert ray.is_initialized()


LDD = """
	libstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007f)
	libibverbs.so.1 => not found
	libnuma.so.1 => not found
	libibverbs.so.1 => not found
"""


def test_missing_libraries_are_named_with_their_packages() -> None:
    sentence = mooncake_master.missing_library_sentence(mooncake_master.missing_libraries(LDD))
    assert "libibverbs.so.1, libnuma.so.1" in sentence
    assert sentence.endswith("apt-get install libibverbs1 libnuma1")


@pytest.mark.parametrize(
    ("module", "extra"), [("transfer_queue", "rlconform[tq]"), ("ray", "rlconform[tq]")]
)
def test_a_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("rlconform.backends.transfer")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "rlconform.backends.ray_runtime")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install") as raised:
        SIMPLE.open(SIMPLE.config, True)
    assert extra in str(raised.value)
    assert module in str(raised.value)


def test_a_missing_library_becomes_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise ImportError("libnuma.so.1: cannot open shared object file: No such file")

    monkeypatch.setattr(mooncake_master.importlib, "import_module", fail)
    monkeypatch.setattr(mooncake_master, "_linked_libraries", lambda: LDD)
    with pytest.raises(ConfigError, match="libnuma1 libibverbs1"):
        mooncake_master.join()

"""``DataPlaneWorkerMixin`` in one process: it fetches a shard, follows the plan, and writes back.

``tests/functional/worker_ranks`` tests several ranks; a group has one rank here.
"""

from __future__ import annotations

import threading
import time
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import ClientClosed, KVBatchMeta
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, PACKING_KEYS
from rlconform.plane import kv_first_write, read_columns
from rlconform.plane.group_broadcast import GroupLost, ReplicaGroup, device_backends
from rlconform.plane.sharding import SequencePacking, shard_meta_for_dp
from rlconform.plane.worker_mixin import DataPlaneWorkerMixin, ModelRanks, WorkerBatch
from rlconform.selftest.conforming_planes import nested_where_it_may
from rlconform.wire import object_column, pack_per_token_field, same_rows
from rlconform.wire.serialization import TensorMessage

IDS = ["u_g0", "u_g1", "v_g0", "v_g1"]
LENGTHS = [2, 0, 3, 3]
WIDTH = 8
PAD = 9
SRC = ModelRanks(tp=0, cp=0, pp=0)
LATE_S = 0.05


class PolicyWorker(DataPlaneWorkerMixin):
    """A worker with only the mixin."""


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    client = MemoryClient()
    client.register_partition("train", ["input_ids"], len(IDS), ["t"])
    yield client
    client.close()


@pytest.fixture
def worker(client: MemoryClient) -> PolicyWorker:
    worker = PolicyWorker()
    worker.attach_plane(client, ranks=SRC, pad_values={"input_ids": PAD})
    return worker


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[dist.ProcessGroup]:
    """A gloo group with only this process."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


def tokens(width: int = 3, fill: int = PAD) -> torch.Tensor:
    """Rows of LENGTHS tokens whose values encode row and column, padded to ``width``."""
    rows = torch.arange(len(IDS))[:, None] * 100 + torch.arange(width)
    return rows.where(torch.arange(width) < torch.tensor(LENGTHS)[:, None], fill)


@pytest.fixture
def meta(client: MemoryClient) -> KVBatchMeta:
    batch = {
        "input_ids": tokens(),
        "input_lengths": torch.tensor(LENGTHS),
        "sample_mask": torch.ones(len(IDS)),
        "message_log": [{"role": "user"}, None, "text", ("a", 1)],
    }
    info = {GLOBAL_FORWARD_PAD_SEQLEN: WIDTH}
    return kv_first_write(client, batch, IDS, "train", extra_info=info)


def read_back(worker: PolicyWorker, meta: KVBatchMeta, field: str) -> Any:
    """A stored column, read by the worker's client."""
    assert worker._plane is not None
    return read_columns(worker._plane.client, meta, [field], layout="jagged").get(field)


# The shard


def test_a_worker_gets_its_rows_and_the_plan(worker: PolicyWorker, meta: KVBatchMeta) -> None:
    work = worker.fetch_shard(meta)
    assert isinstance(work, WorkerBatch)
    assert set(work.batch.keys()) == {"input_ids", "input_lengths", "sample_mask", "message_log"}
    assert torch.equal(work.batch["input_ids"], tokens(WIDTH))
    assert work.batch["input_lengths"].tolist() == LENGTHS
    assert work.batch.get("message_log").tolist() == [{"role": "user"}, None, "text", ("a", 1)]
    assert work.packing == {}


def test_every_shard_is_padded_to_the_steps_width(worker: PolicyWorker, meta: KVBatchMeta) -> None:
    shards, _inverse = shard_meta_for_dp(meta, 2)
    widths = {worker.fetch_shard(shard).batch["input_ids"].shape for shard in shards}
    assert widths == {(2, WIDTH)}
    assert worker.fetch_shard(meta.subset([1])).batch["input_ids"].tolist() == [[PAD] * WIDTH]
    assert worker.fetch_shard(meta.subset([]), ["input_ids"]).batch.batch_size == (0,)


@pytest.mark.parametrize("layout", ["dense", "jagged"])
def test_a_column_is_padded_alike_whether_the_plane_returns_it_dense_or_jagged(
    client: MemoryClient,
    worker: PolicyWorker,
    meta: KVBatchMeta,
    layout: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    client.put_samples(IDS, "train", TensorDict({"advantages": rows}, [4]))
    if layout == "jagged":
        read = client.get_samples
        monkeypatch.setattr(client, "get_samples", lambda **row: nested_where_it_may(read(**row)))
    stored = client.get_samples(sample_ids=IDS, partition_id="train", select_fields=["advantages"])
    assert stored["advantages"].is_nested == (layout == "jagged")
    work = worker.fetch_shard(meta, ["advantages"])
    assert torch.equal(work.batch["advantages"], torch.nn.functional.pad(rows, (0, WIDTH - 3)))


@pytest.mark.parametrize("width", [None, True, -1, 8.0, "8", torch.ones(2)], ids=str)
def test_a_shard_without_the_steps_width_is_refused(
    worker: PolicyWorker, meta: KVBatchMeta, width: Any
) -> None:
    with pytest.raises(ValueError, match=GLOBAL_FORWARD_PAD_SEQLEN):
        worker.fetch_shard(replace(meta, extra_info={GLOBAL_FORWARD_PAD_SEQLEN: width}))
    with pytest.raises(ValueError, match=GLOBAL_FORWARD_PAD_SEQLEN):
        worker.fetch_shard(replace(meta, extra_info={}))


def test_a_width_below_a_row_is_refused(worker: PolicyWorker, meta: KVBatchMeta) -> None:
    with pytest.raises(ValueError, match="input_ids"):
        worker.fetch_shard(replace(meta, extra_info={GLOBAL_FORWARD_PAD_SEQLEN: 2}))


def test_a_numpy_integer_is_a_width(worker: PolicyWorker, meta: KVBatchMeta) -> None:
    counted = replace(meta, extra_info={GLOBAL_FORWARD_PAD_SEQLEN: np.int64(5)})
    assert worker.fetch_shard(counted).batch["input_ids"].shape == (4, 5)


def test_the_drivers_plan_comes_along_as_it_is(worker: PolicyWorker, meta: KVBatchMeta) -> None:
    shards, _inverse = shard_meta_for_dp(meta, 2, sequence_packing=SequencePacking(4))
    for shard in shards:
        packing = worker.fetch_shard(shard).packing
        assert set(packing) == set(PACKING_KEYS)
        assert packing == {key: shard.extra_info[key] for key in PACKING_KEYS}
        packing[PACKING_KEYS[0]].clear()
        assert shard.extra_info[PACKING_KEYS[0]]


def test_columns_are_those_asked_for_or_the_shards(worker: PolicyWorker, meta: KVBatchMeta) -> None:
    assert set(worker.fetch_shard(meta, ["sample_mask"]).batch.keys()) == {"sample_mask"}
    for nothing in (replace(meta, fields=None), replace(meta, fields=[])):
        with pytest.raises(ValueError, match="columns"):
            worker.fetch_shard(nothing)
    with pytest.raises(ValueError, match="columns"):
        worker.fetch_shard(meta, [])


def test_what_is_not_there_is_a_lookup_error(worker: PolicyWorker, meta: KVBatchMeta) -> None:
    with pytest.raises(LookupError):
        worker.fetch_shard(meta, ["advantages"])
    with pytest.raises(LookupError):
        worker.fetch_shard(replace(meta, sample_ids=[*IDS[:3], "w"]))


# The ranks


def test_rank_0_of_the_group_must_be_the_one_that_writes(
    client: MemoryClient, alone: dist.ProcessGroup
) -> None:
    with pytest.raises(ValueError, match="tp=1"):
        PolicyWorker().attach_plane(
            client, ranks=ModelRanks(tp=1, cp=0, pp=0), replica=ReplicaGroup(alone)
        )


@pytest.mark.parametrize("ranks", [{}, {"tp": 0}, {"tp": 0, "cp": 0}])
def test_no_coordinate_has_a_default(ranks: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        ModelRanks(**ranks)


@pytest.mark.parametrize("rank", [-1, True, 0.0, None, "0"])
def test_a_coordinate_is_a_rank(rank: Any) -> None:
    for name in ("tp", "cp", "pp"):
        with pytest.raises(ValueError, match=name):
            ModelRanks(**{"tp": 0, "cp": 0, "pp": 0, name: rank})


def test_a_worker_must_be_attached(
    client: MemoryClient, worker: PolicyWorker, meta: KVBatchMeta
) -> None:
    worker.detach_plane()
    worker.detach_plane()
    for detached in (worker, PolicyWorker()):
        with pytest.raises(RuntimeError, match="attach_plane"):
            detached.fetch_shard(meta)
        with pytest.raises(RuntimeError, match="attach_plane"):
            detached.write_back(meta, "score", torch.ones(4))
    assert client.get_samples(IDS, "train", ["sample_mask"]).batch_size == (4,)


# The write-back


MAPPINGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dict": dict,
    "UserDict": UserDict,
    "MappingProxyType": MappingProxyType,
    "TensorDict": lambda columns: TensorDict(columns, [4]),
}


def test_a_wider_column_is_written_row_by_row(worker: PolicyWorker, meta: KVBatchMeta) -> None:
    receipt = worker.write_back(meta, "prev_logprobs", tokens(11, fill=-1).bfloat16())
    assert receipt is not None
    assert receipt.sample_ids == IDS
    assert same_rows(
        read_back(worker, meta, "prev_logprobs"),
        pack_per_token_field(tokens().bfloat16(), LENGTHS),
    )


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS.keys())
def test_any_mapping_that_holds_the_column_is_taken(
    worker: PolicyWorker, meta: KVBatchMeta, mapping: Callable[[dict[str, Any]], Any]
) -> None:
    result = mapping({"score": torch.arange(4), "other": torch.zeros(4)})
    assert worker.write_back(meta, "score", result).fields == ["score"]  # type: ignore[union-attr]
    assert read_back(worker, meta, "score").tolist() == [0, 1, 2, 3]
    with pytest.raises(LookupError):
        read_back(worker, meta, "other")


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS.keys())
def test_a_mapping_without_the_column_is_never_passed_over(
    worker: PolicyWorker, meta: KVBatchMeta, mapping: Callable[[dict[str, Any]], Any]
) -> None:
    with pytest.raises(KeyError, match="logprobs"):
        worker.write_back(meta, "prev_logprobs", mapping({"logprobs": tokens().float()}))


@pytest.mark.parametrize("wrap", [list, object_column], ids=["list", "NonTensorStack"])
def test_an_object_column_is_a_column_and_no_mapping(
    worker: PolicyWorker, meta: KVBatchMeta, wrap: Callable[[list[Any]], Any]
) -> None:
    values = [{"verdict": "ok"}, None, "x", [1]]
    for result in (wrap(values), {"judged": wrap(values)}, TensorDict({"judged": wrap(values)})):
        worker.write_back(meta, "judged", result)
        assert read_back(worker, meta, "judged").tolist() == values


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (tokens(2), ValueError),
        (tokens()[:3], ValueError),
        (None, TypeError),
        ("text", TypeError),
        ({"advantages": None}, TypeError),
    ],
    ids=["narrow", "rows", "None", "str", "None in a mapping"],
)
def test_a_column_that_does_not_fit_is_refused_and_nothing_stored(
    worker: PolicyWorker, meta: KVBatchMeta, values: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        worker.write_back(meta, "advantages", values)
    with pytest.raises(LookupError):
        read_back(worker, meta, "advantages")


@pytest.mark.parametrize("place", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 2, 3)])
def test_another_rank_than_src_writes_nothing(
    client: MemoryClient, meta: KVBatchMeta, place: tuple[int, int, int]
) -> None:
    other = PolicyWorker()
    other.attach_plane(client, ranks=ModelRanks(tp=place[0], cp=place[1], pp=place[2]))
    assert other.write_back(meta, "score", torch.ones(4)) is None
    with pytest.raises(LookupError):
        client.get_samples(IDS, "train", ["score"])
    client.close()
    assert other.write_back(meta, "score", torch.ones(4)) is None
    with pytest.raises(ClientClosed):
        other.fetch_shard(meta)


# A src rank that reads for a group of one


COLUMNS: dict[str, Any] = {
    "bf16": torch.tensor([[float("nan"), -0.0, 1.0]] * 4, dtype=torch.bfloat16),
    "e4m3": torch.arange(4.0).to(torch.float8_e4m3fn),
    "bool": torch.tensor([[True], [False], [True], [True]]),
    "complex": torch.complex(torch.arange(4.0), torch.ones(4)),
    "empty": torch.empty(4, 0, 3, dtype=torch.int16),
    "jagged": pack_per_token_field(tokens().double(), LENGTHS),
    "jagged_flags": pack_per_token_field(tokens()[..., None] > PAD, LENGTHS),
    "all_empty": pack_per_token_field(tokens(), [0] * 4),
    "objects": object_column([None, {"a": [torch.ones(2, dtype=torch.bfloat16)]}, (1,), "x"]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_group_gets_what_a_rank_alone_reads_bit_for_bit(
    client: MemoryClient, meta: KVBatchMeta, alone: dist.ProcessGroup, name: str
) -> None:
    client.put_samples(IDS, "train", TensorDict({name: COLUMNS[name]}, [4]))
    got = []
    for replica in (None, ReplicaGroup(alone, timeout_s=10)):
        worker = PolicyWorker()
        worker.attach_plane(client, ranks=SRC, replica=replica)
        got.append(worker.fetch_shard(meta, [name]).batch.get(name))
    if name == "objects":
        assert str(got[0].tolist()) == str(got[1].tolist())
    else:
        assert same_rows(got[0], got[1])


def test_the_src_rank_raises_the_planes_own_error_and_goes_on(
    client: MemoryClient, meta: KVBatchMeta, alone: dist.ProcessGroup
) -> None:
    worker = PolicyWorker()
    worker.attach_plane(client, ranks=SRC, replica=ReplicaGroup(alone, timeout_s=10))
    with pytest.raises(LookupError):
        worker.fetch_shard(meta, ["advantages"])
    with pytest.raises(ValueError, match="input_ids"):
        worker.fetch_shard(replace(meta, extra_info={GLOBAL_FORWARD_PAD_SEQLEN: 2}))
    with pytest.raises(ValueError, match=GLOBAL_FORWARD_PAD_SEQLEN):
        worker.fetch_shard(replace(meta, extra_info={}))
    assert worker.fetch_shard(meta).batch.batch_size == (4,)


def test_a_value_that_cannot_be_sent_is_an_error_on_the_src_rank(alone: dist.ProcessGroup) -> None:
    replica = ReplicaGroup(alone, timeout_s=10)
    with pytest.raises(TypeError):
        replica.share(lambda: {"lock": threading.Lock()}, lambda value: value)
    assert replica.share(lambda: 1, lambda value: value + 1) == 2


def test_a_src_rank_that_read_for_too_long_does_not_go_on_alone(alone: dist.ProcessGroup) -> None:
    replica = ReplicaGroup(alone, timeout_s=LATE_S)

    def read_for_too_long() -> int:
        end = time.monotonic() + 2 * LATE_S
        while time.monotonic() < end:
            pass
        return 1

    with pytest.raises(GroupLost):
        replica.share(read_for_too_long, lambda value: value)
    assert_unusable(replica)


def test_an_interrupt_is_passed_on_and_the_group_stays_in_step(alone: dist.ProcessGroup) -> None:
    replica = ReplicaGroup(alone, timeout_s=10)

    def interrupted(_value: int = 0) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replica.share(interrupted, lambda value: value)
    with pytest.raises(KeyboardInterrupt):
        replica.share(lambda: 1, interrupted)
    assert replica.share(lambda: 1, lambda value: value) == 1


def assert_unusable(replica: ReplicaGroup) -> None:
    """A later call raises before it reads."""
    reads: list[int] = []
    with pytest.raises(GroupLost):
        replica.share(lambda: reads.append(1), lambda value: value)
    assert reads == []


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan"), float("inf")])
def test_a_group_needs_a_timeout(alone: dist.ProcessGroup, timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s"):
        ReplicaGroup(alone, timeout_s=timeout_s)


def test_a_process_outside_the_group_is_refused(alone: dist.ProcessGroup) -> None:
    assert alone.size() == 1
    with pytest.raises(ValueError, match="rank"):
        ReplicaGroup(dist.GroupMember.NON_GROUP_MEMBER)  # type: ignore[arg-type]


# Sent messages


def sent_and_back(value: Any) -> Any:
    message = TensorMessage.of(value)
    return replace(message, tensors=[tensor.clone() for tensor in message.tensors]).value()


def test_tensors_are_never_pickled() -> None:
    whole = torch.arange(100_000)
    message = TensorMessage.of([{"role": "user", "token_ids": whole[i : i + 3]} for i in range(50)])
    assert len(message.tensors) == 50
    assert sum(tensor.numel() for tensor in message.tensors) == 150
    assert len(message.structure) < 50 * 40


def test_a_tensor_that_is_there_twice_stays_one() -> None:
    tensor = torch.ones(3)
    first, second = sent_and_back([tensor, tensor])
    assert first is second


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).reshape(3, 4).T,
        torch.ones(1).expand(5),
        torch.complex(torch.ones(2), torch.ones(2)).conj(),
        torch.tensor(7),
        torch.empty(0, 3),
    ],
    ids=["transposed", "expanded", "conjugated", "scalar", "empty"],
)
def test_a_tensor_of_any_strides_comes_back(tensor: torch.Tensor) -> None:
    assert torch.equal(sent_and_back({"x": tensor})["x"], tensor)


def test_tensors_that_are_more_than_their_bytes_are_pickled() -> None:
    jagged = pack_per_token_field(tokens(), LENGTHS)
    trained = torch.nn.Parameter(torch.ones(2))
    got = sent_and_back([torch.eye(3).to_sparse(), jagged, trained])
    assert torch.equal(got[0].to_dense(), torch.eye(3))
    assert same_rows(got[1], jagged)
    assert isinstance(got[2], torch.nn.Parameter)


@pytest.mark.parametrize(
    ("backends", "devices"),
    [
        ("cpu:gloo,cuda:gloo", set()),
        ("cpu:gloo,cuda:nccl", {"cuda"}),
        ("cuda:nccl", {"cuda"}),
    ],
)
def test_a_group_sends_from_devices_with_a_backend_of_their_own(
    backends: str, devices: set[str]
) -> None:
    assert device_backends(backends) == devices


def test_a_tensor_of_a_device_without_a_backend_is_sent_from_the_cpu() -> None:
    """Torch's device ``meta`` stands for a GPU; a copy of it to the CPU is refused."""
    value = {"ids": torch.arange(3), "routes": torch.ones(2, 3, device="meta").T}
    message = TensorMessage.of(value, {"meta"})
    assert [tensor.device.type for tensor in message.tensors] == message.devices == ["cpu", "meta"]
    assert message.tensors[1].is_contiguous()
    with pytest.raises(NotImplementedError, match="meta"):
        TensorMessage.of(value)


@pytest.mark.parametrize(("there", "placed"), [("meta", "meta"), (None, "cpu")])
def test_a_tensor_gets_its_device_back_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, there: str | None, placed: str
) -> None:
    device = None if there is None else torch.device(there)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: device)
    sent = TensorMessage.of([torch.arange(3), torch.arange(4), {"log": torch.arange(5)}])
    received = replace(sent, devices=["cpu", "meta", "meta"])
    ids, routes, log = received.value()
    assert ids.device.type == "cpu"
    assert routes.device.type == log["log"].device.type == placed
    assert (len(routes), len(log["log"])) == (4, 5)


def test_a_class_of_a_script_travels_by_value() -> None:
    local = type("Local", (), {"__module__": "__main__", "word": "here"})
    assert sent_and_back([local()])[0].word == "here"

"""Policy workers as ranks in several processes, with gloo groups and a ray_store plane.

test ── join, fetch ──▶ Rank (a Ray actor): a worker, its client, its rank of a gloo group
     ── break_get ────▶ makes its next read raise, or hang until released
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import torch
from tensordict import TensorDict

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.backends.ray_store import TARGET
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import ForeignRow, KVBatchMeta
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, PACKING_KEYS
from rlconform.plane import kv_first_write, read_columns
from rlconform.plane.group_broadcast import (
    GroupLost,
    ReplicaFailed,
    ReplicaGroup,
    SourceFailed,
    SourceLookupFailed,
)
from rlconform.plane.sharding import SequencePacking, shard_meta_for_dp
from rlconform.plane.worker_mixin import DataPlaneWorkerMixin, ModelRanks, ShardMismatch
from rlconform.wire import pack_per_token_field, rows_of

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("worker_ranks")]

CONFIG: dict[str, Any] = dict(TARGET.config)
PAD = 7
WIDTH = 12
LENGTHS = [3, 0, 9, 1, 5, 5, 2, 8]
SOON = 20.0  # seconds; much longer than a fetch, shorter than the timeout that would hide a hang
LONG = 60.0  # seconds; a timeout that never expires here
SHORT = 1.5  # seconds; a timeout that expires


@dataclass(frozen=True)
class CallResult:
    """What a call returned or raised in its process, and how long it took."""

    value: Any
    error: type[BaseException] | None
    text: str
    seconds: float


class Rank(DataPlaneWorkerMixin):
    """One rank of a run, as a Ray actor."""

    def __init__(self) -> None:
        self.client = RayStoreClient(CONFIG, bootstrap=False)
        self.whole_get = self.client.get_samples
        self.reading, self.release = threading.Event(), threading.Event()
        self.reads = 0
        self.client.get_samples = self.get  # type: ignore[method-assign]
        self.fault = ""

    def get(self, **asked: Any) -> TensorDict:
        """The plane's get_samples, or the fault that ``break_get`` set."""
        self.reads += 1
        self.reading.set()
        if self.fault == "raise":
            raise ForeignRow("bytes of another row")
        if self.fault == "interrupt":
            raise KeyboardInterrupt
        if self.fault == "hang":
            self.release.wait()
        return self.whole_get(**asked)

    def join(self, store: str, rank: int, replicas: list[list[int]], timeout_s: float) -> None:
        """Form the run's groups, and attach."""
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        world = sum(map(len, replicas))
        dist = torch.distributed
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, world),  # type: ignore[attr-defined]
            rank=rank,
            world_size=world,
        )
        groups = [dist.new_group(ranks) for ranks in replicas]
        mine = next(i for i, ranks in enumerate(replicas) if rank in ranks)
        self.replica = ReplicaGroup(groups[mine], timeout_s=timeout_s)
        self.reads, self.fault = 0, ""
        self.reading.clear()
        self.release.clear()
        self.stand(ModelRanks(tp=self.replica.rank, cp=0, pp=0))

    def stand(self, place: ModelRanks, alone: bool = False) -> None:
        """Attach with these ranks, and read ``alone`` or through the replica group."""
        self.attach_plane(
            self.client,
            ranks=place,
            replica=None if alone else self.replica,
            pad_values={"input_ids": PAD, "generation_logprobs": float("nan")},
        )

    def fetch(self, shard: KVBatchMeta, *args: Any, **kwargs: Any) -> CallResult:
        """``fetch_shard``: the batch as plain bytes, and the packing."""

        def call() -> Any:
            work = self.fetch_shard(shard, *args, **kwargs)
            return {name: plain(leaf) for name, leaf in work.batch.items()}, work.packing

        return timed(call)

    def write(self, shard: KVBatchMeta, field: str, values: Any) -> bool:
        """Whether ``write_back`` wrote."""
        return self.write_back(shard, field, values) is not None

    def break_get(self, fault: str) -> None:
        """Make later reads ``raise``, be ``interrupt``ed, or ``hang`` until ``let_go``."""
        self.fault = fault

    def until_reading(self) -> bool:
        """Wait for a read to begin."""
        return self.reading.wait(SOON)

    def let_go(self) -> None:
        """End the hanging."""
        self.release.set()

    def count_reads(self) -> int:
        """Reads begun since ``join``."""
        return self.reads

    def pid(self) -> int:
        """This rank's process."""
        return os.getpid()

    def leave(self) -> None:
        """Leave the run."""
        self.release.set()
        self.detach_plane()
        del self.replica
        torch.distributed.destroy_process_group()


def plain(leaf: Any) -> Any:
    """A column as comparable values: rows of dtype, shape and bytes, or objects."""
    if not isinstance(leaf, torch.Tensor):
        return [str(value) for value in leaf.tolist()]
    layout = "jagged" if leaf.is_nested else tuple(leaf.shape)
    rows = [row.contiguous().view(-1).view(torch.uint8) for row in rows_of(leaf)]
    shapes = [tuple(row.shape) for row in rows_of(leaf)]
    return layout, leaf.dtype, shapes, [bytes(row.tolist()) for row in rows]


def timed(call: Callable[[], Any]) -> CallResult:
    start = time.monotonic()
    value, error, text = None, None, ""
    try:
        value = call()
    except BaseException as raised:  # noqa: BLE001 - the test judges what was raised
        error, text = type(raised), str(raised)
    return CallResult(value, error, text, time.monotonic() - start)


# The processes, shared by all tests; a dead process is replaced


class RankPool:
    """Four rank processes that all tests share; no test needs more."""

    def __init__(self) -> None:
        self.idle: list[Any] = []

    def take(self, count: int) -> list[Any]:
        while len(self.idle) < 4:
            rank = ray.remote(Rank).options(num_cpus=0, max_concurrency=3).remote()
            self.idle.append(rank)
        taken, self.idle = self.idle[:count], self.idle[count:]
        ray.get([rank.count_reads.remote() for rank in taken], timeout=120)
        return taken

    def give_back(self, ranks: list[Any]) -> None:
        for rank in ranks:
            try:
                ray.get(rank.leave.remote(), timeout=SOON)
            except ray.exceptions.RayActorError:
                continue
            self.idle.append(rank)


@pytest.fixture(scope="module")
def owner() -> Iterator[RayStoreClient]:
    with ensure_ray():
        client = RayStoreClient(CONFIG)
        yield client
        client.close()


@pytest.fixture(scope="module")
def pool(owner: RayStoreClient) -> RankPool:
    assert owner is not None
    return RankPool()


@pytest.fixture
def join(pool: RankPool, tmp_path: Path) -> Iterator[Callable[..., list[Any]]]:
    """``join(2, 2)`` makes two replicas of two ranks each, one process per rank."""
    taken: list[Any] = []

    def form(*sizes: int, timeout_s: float = LONG) -> list[Any]:
        taken.extend(pool.take(sum(sizes)))
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        replicas = [list(range(at, at + size)) for at, size in zip(starts, sizes, strict=True)]
        store = str(tmp_path / "store")
        call(taken, "join", lambda rank: (store, rank, replicas, timeout_s))
        return list(taken)

    yield form
    pool.give_back(taken)


def start(ranks: list[Any], method: str, *args: Any, **kwargs: Any) -> list[Any]:
    return [getattr(rank, method).remote(*args, **kwargs) for rank in ranks]


def call(ranks: list[Any], method: str, arguments: Callable[[int], tuple[Any, ...]]) -> list[Any]:
    """The answers of all ranks to concurrent calls, each with different arguments."""
    calls = [getattr(rank, method).remote(*arguments(i)) for i, rank in enumerate(ranks)]
    answers: list[Any] = ray.get(calls, timeout=LONG + SOON)
    return answers


def fetched(ranks: list[Any], shard: KVBatchMeta, *args: Any, **kwargs: Any) -> list[CallResult]:
    """Fetch this shard on all ranks at the same time."""
    results: list[CallResult] = ray.get(
        start(ranks, "fetch", shard, *args, **kwargs), timeout=LONG + SOON
    )
    return results


def assert_all_have_it(results: list[CallResult]) -> None:
    assert [each.error for each in results] == [None] * len(results), results
    assert all(each.value == results[0].value for each in results)


# The rows of a step


def tokens() -> torch.Tensor:
    return torch.arange(8)[:, None] * 100 + torch.arange(9)


@pytest.fixture
def meta(owner: RayStoreClient, tmp_path: Path) -> KVBatchMeta:
    """Eight rows, with columns of every kind."""
    ids = [f"r{i}" for i in range(8)]
    batch = {
        "input_ids": tokens(),
        "input_lengths": torch.tensor(LENGTHS),
        "generation_logprobs": torch.randn(8, 9).bfloat16(),
        "token_mask": torch.ones(8, 9, dtype=torch.int32),
        "sample_mask": torch.tensor([True, False] * 4),
        "scales": torch.randn(8, 3).to(torch.float8_e5m2),
        "routes": pack_per_token_field(tokens()[..., None].expand(8, 9, 2).short(), LENGTHS),
        "pixels": torch.full((8, 2, 3), float("nan")),
        "nothing": torch.empty(8, 0, 4, dtype=torch.float16),
        "message_log": [[{"role": "user", "ids": torch.arange(i)}, None] for i in range(8)],
    }
    info = {GLOBAL_FORWARD_PAD_SEQLEN: WIDTH}
    return kv_first_write(owner, batch, ids, f"p-{tmp_path.name}", extra_info=info)


@pytest.mark.parametrize("size", [2, 4])
def test_every_rank_gets_the_bytes_that_it_would_have_read(
    join: Callable[..., list[Any]], meta: KVBatchMeta, size: int
) -> None:
    ranks = join(size)
    (shard,), _inverse = shard_meta_for_dp(meta, 1, sequence_packing=SequencePacking(16))
    results = fetched(ranks, shard)
    assert_all_have_it(results)
    assert ray.get(start(ranks, "count_reads")) == [1] + [0] * (size - 1)
    batch, packing = results[0].value
    assert set(batch) == set(meta.fields or ())
    assert packing == {key: shard.extra_info[key] for key in PACKING_KEYS}

    ray.get(start(ranks, "stand", ModelRanks(tp=0, cp=0, pp=0), alone=True))
    alone = fetched(ranks, shard)
    assert_all_have_it(alone)
    assert ray.get(start(ranks, "count_reads")) == [2] + [1] * (size - 1)
    assert alone[0].value == results[0].value


def test_replicas_read_a_shard_each_and_one_rank_of_each_writes(
    join: Callable[..., list[Any]], owner: RayStoreClient, meta: KVBatchMeta
) -> None:
    ranks = join(2, 2)
    shards, inverse = shard_meta_for_dp(meta, 2, sequence_packing=SequencePacking(16))
    results = call(ranks, "fetch", lambda rank: (shards[rank // 2],))
    assert_all_have_it(results[:2])
    assert_all_have_it(results[2:])
    assert ray.get(start(ranks, "count_reads")) == [1, 0, 1, 0]
    for column in ("input_ids", "routes"):
        shapes = [each.value[0][column][0] for each in results]
        assert {shape[:2] for shape in shapes} == {(4, WIDTH)}
    microbatches = [each.value[1]["micro_batch_indices"] for each in results]
    assert len({len(batches[0]) for batches in microbatches}) == 1

    results = [read_columns(owner, shard, ["input_ids"], pad_to_seqlen=16) for shard in shards]
    wide = [batch["input_ids"].double() for batch in results]  # as sequence parallelism produces it
    wrote = call(
        ranks, "write", lambda rank: (shards[rank // 2], "prev_logprobs", wide[rank // 2] - rank)
    )
    assert wrote == [True, False, True, False]
    stored = read_columns(owner, meta, ["prev_logprobs"], pad_to_seqlen=WIDTH)["prev_logprobs"]
    in_rank_order = torch.cat([wide[0], wide[1] - 2])
    for i, length in enumerate(LENGTHS):
        assert torch.equal(stored[i, :length], in_rank_order[inverse[i], :length])


@pytest.mark.parametrize("other", ["cp", "pp"])
def test_one_rank_writes_for_a_replica_that_is_split_in_two_ways(
    join: Callable[..., list[Any]], owner: RayStoreClient, meta: KVBatchMeta, other: str
) -> None:
    ranks = join(4)
    places = [{"tp": 0, "cp": 0, "pp": 0} | {"tp": i % 2, other: i // 2} for i in range(4)]
    call(ranks, "stand", lambda rank: (ModelRanks(**places[rank]),))
    assert_all_have_it(fetched(ranks, meta))
    wrote = [  # one after another: a second writer would overwrite the value
        ray.get(rank.write.remote(meta, "prev_logprobs", torch.full((8, WIDTH), 1.0 + i)))
        for i, rank in enumerate(ranks)
    ]
    assert wrote == [True, False, False, False]
    stored = read_columns(owner, meta, ["prev_logprobs"], pad_to_seqlen=WIDTH)["prev_logprobs"]
    rows = [stored[i, :length] for i, length in enumerate(LENGTHS)]
    assert torch.cat(rows).unique().tolist() == [1.0]


@pytest.mark.parametrize("size", [2, 4])
def test_a_src_rank_that_cannot_read_fails_on_every_rank(
    join: Callable[..., list[Any]], meta: KVBatchMeta, size: int
) -> None:
    ranks = join(size)
    missing = fetched(ranks, meta, ["advantages"])
    assert issubclass(missing[0].error or object, LookupError)
    assert {each.error for each in missing[1:]} == {SourceLookupFailed}

    ray.get(ranks[0].break_get.remote("raise"))
    broken = fetched(ranks, meta)
    assert [each.error for each in broken] == [ForeignRow] + [SourceFailed] * (size - 1)
    assert all("ForeignRow" in each.text for each in broken[1:])
    assert all(each.seconds < SOON for each in missing + broken)

    ray.get(ranks[0].break_get.remote(""))
    assert_all_have_it(fetched(ranks, meta))


def malformed(shard: KVBatchMeta) -> dict[str, tuple[Any, type[Exception]]]:
    """Shards that are malformed on one rank, and the error that it raises."""
    plan = shard.extra_info
    return {
        "no width": (replace(shard, extra_info={}), ValueError),
        "too narrow": (
            replace(shard, extra_info=plan | {GLOBAL_FORWARD_PAD_SEQLEN: 2}),
            ShardMismatch,
        ),
        "other plan": (replace(shard, extra_info=plan | {PACKING_KEYS[0]: [[]]}), ShardMismatch),
        "other rows": (shard.subset(range(7)), ShardMismatch),
        "other order": (shard.subset(reversed(range(8))), ShardMismatch),
        "no shard": (None, AttributeError),
    }


def test_a_rank_with_a_malformed_shard_fails_with_all_others_and_they_stay_in_step(
    join: Callable[..., list[Any]], meta: KVBatchMeta
) -> None:
    ranks = join(4)
    for shard, error in malformed(meta).values():
        results = call(ranks, "fetch", lambda rank, odd=shard: (odd if rank == 2 else meta,))  # type: ignore[misc]
        expected = [ReplicaFailed, ReplicaFailed, error, ReplicaFailed]
        assert [each.error for each in results] == expected, results
        assert all(each.seconds < SOON for each in results)
        assert "[2]" in results[0].text
    assert_all_have_it(fetched(ranks, meta))
    broken_src = call(ranks, "fetch", lambda rank: (None if rank == 0 else meta,))
    assert [each.error for each in broken_src] == [AttributeError] + [SourceFailed] * 3
    assert_all_have_it(fetched(ranks, meta))


def assert_lost_on_time(results: list[CallResult], timeout_s: float) -> None:
    """All ranks raise GroupLost, not before the first timeout and not long after their timeouts."""
    assert [each.error for each in results] == [GroupLost] * len(results), results
    assert 0.9 * timeout_s < max(each.seconds for each in results) < timeout_s + SOON / 2, results


def assert_lost_at_once(ranks: list[Any], shard: KVBatchMeta) -> None:
    """A lost group stays lost: each rank raises immediately, before it reads or waits."""
    reads = ray.get(start(ranks, "count_reads"))
    again = fetched(ranks, shard)
    assert [each.error for each in again] == [GroupLost] * len(ranks)
    assert all(each.text.startswith("the group can't be used any more") for each in again), again
    assert ray.get(start(ranks, "count_reads")) == reads


@pytest.mark.parametrize("size", [2, 4])
def test_a_src_rank_that_hangs_keeps_no_rank_beyond_the_timeout(
    join: Callable[..., list[Any]], meta: KVBatchMeta, size: int
) -> None:
    ranks = join(size, timeout_s=SHORT)
    ray.get(ranks[0].break_get.remote("hang"))
    src, *others = start(ranks, "fetch", meta)
    assert_lost_on_time(ray.get(others, timeout=SOON), SHORT)
    ray.get(ranks[0].let_go.remote())
    assert ray.get(src, timeout=SOON).error is GroupLost
    assert_lost_at_once(ranks, meta)


def test_a_src_rank_that_is_late_does_not_go_on_alone(
    join: Callable[..., list[Any]], meta: KVBatchMeta
) -> None:
    ranks = join(2, timeout_s=SHORT)
    assert_lost_on_time(fetched(ranks[1:], meta), SHORT)
    (src,) = fetched(ranks[:1], meta)
    assert src.error is GroupLost, src
    assert src.seconds < SHORT + SOON / 2, src
    assert_lost_at_once(ranks, meta)


def test_the_death_of_the_src_rank_during_its_read_ends_all_waits_at_once(
    join: Callable[..., list[Any]], meta: KVBatchMeta
) -> None:
    ranks = join(4)
    ray.get(ranks[0].break_get.remote("hang"))
    src, *others = start(ranks, "fetch", meta)
    assert ray.get(ranks[0].until_reading.remote(), timeout=SOON)
    ray.kill(ranks[0])
    results = ray.get(others, timeout=SOON)
    assert [each.error for each in results] == [GroupLost] * 3, results
    assert_lost_at_once(ranks[1:], meta)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(src, timeout=SOON)


def test_the_death_of_another_rank_keeps_no_rank_beyond_the_timeout(
    join: Callable[..., list[Any]], meta: KVBatchMeta
) -> None:
    ranks = join(4, timeout_s=2 * SHORT)
    ray.get(ranks[0].break_get.remote("hang"))
    victim = psutil.Process(ray.get(ranks[2].pid.remote()))
    calls = start(ranks, "fetch", meta)
    assert ray.get(ranks[0].until_reading.remote(), timeout=SOON)
    victim.kill()  # not by Ray: an immediately released src rank would be faster
    victim.wait(SOON)
    ray.get(ranks[0].let_go.remote())
    results = ray.get([calls[i] for i in (0, 1, 3)], timeout=2 * SHORT + SOON)
    assert [each.error for each in results] == [GroupLost] * 3, results
    assert all(each.seconds < 2 * SHORT + SOON / 2 for each in results), results


def test_an_interrupt_of_the_src_rank_fails_on_every_rank(
    join: Callable[..., list[Any]], meta: KVBatchMeta
) -> None:
    ranks = join(2)
    ray.get(ranks[0].break_get.remote("interrupt"))
    results = fetched(ranks, meta)
    assert [each.error for each in results] == [KeyboardInterrupt, SourceFailed], results
    assert all(each.seconds < SOON for each in results)
    ray.get(ranks[0].break_get.remote(""))
    assert_all_have_it(fetched(ranks, meta))

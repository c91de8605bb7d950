"""Every rank gets the bytes that its src rank read, and one rank of each replica writes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import ray
import torch

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import PACKING_KEYS
from rlconform.plane import read_columns
from rlconform.plane.sharding import SequencePacking, shard_meta_for_dp
from rlconform.plane.worker_mixin import ModelRanks

from .calls import MARKS, assert_all_have_it, call, fetched, start
from .rank_actor import LENGTHS, WIDTH

pytestmark = MARKS


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

"""A read that fails on one rank fails on every rank, and the next read succeeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import ray

from rlconform.contract import ForeignRow, KVBatchMeta
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, PACKING_KEYS
from rlconform.plane.group_broadcast import ReplicaFailed, SourceFailed, SourceLookupFailed
from rlconform.plane.worker_mixin import ShardMismatch

from .calls import MARKS, assert_all_have_it, call, fetched
from .rank_actor import SOON

pytestmark = MARKS


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

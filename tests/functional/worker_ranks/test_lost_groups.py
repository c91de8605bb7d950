"""A rank that hangs, is late or dies keeps no other rank waiting, and its group stays lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil
import pytest
import ray

from rlconform.contract import KVBatchMeta
from rlconform.plane.group_broadcast import GroupLost

from .calls import MARKS, SHORT, fetched, start
from .rank_actor import SOON, CallResult

pytestmark = MARKS


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

"""Calls of several ranks at the same time, and the marks of all tests here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import ray

from rlconform.contract import KVBatchMeta

from .rank_actor import SOON, CallResult

#: Of each test module here: they share the rank processes.
MARKS = [pytest.mark.timeout(300), pytest.mark.xdist_group("worker_ranks")]

LONG = 60.0  # seconds; a timeout that never expires here
SHORT = 1.5  # seconds; a timeout that expires


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

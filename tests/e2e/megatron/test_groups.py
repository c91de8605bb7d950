"""A rank that builds one policy after the other leaves the process groups of the ones before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlconform.grpo.config import MasterConfig
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.worker_group import WorkerGroup

pytestmark = pytest.mark.timeout(300)


def test_threads_do_not_add_up_over_builds(
    configure: Callable[..., MasterConfig], ranks: Callable[[int], WorkerGroup], rank_class: Any
) -> None:
    """Each group of gloo has threads and connections of its own."""
    counts = []
    for _ in range(3):
        for layout in ("tp2", "pp2", "dp2"):
            ranks(2).all(PolicyWorker.build, configure("tiny_llama_copy", layout))
        counts.append(ranks(2).all(rank_class.threads))
    growth = [last - first for first, last in zip(counts[0], counts[-1], strict=True)]
    assert max(growth) < 10, counts  # six builds; a group alone has two threads

"""A training step so large that it exceeds a plane's pages, chunks and caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from rlconform.certify.scenarios.partition import PartitionUnderTest

#: Beyond 2**13 and 10,000, where tables and limits end: 644 prompts with 16 samples each.
STEP_ROWS = 10_304
STEP_IDS = [f"u{n // 16}_g{n % 16}" for n in range(STEP_ROWS)]


def put_large_step(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """Return a new partition in which row ``n`` of ``STEP_IDS`` has the number ``n`` as ``x``."""
    part = new_partition(num_samples=len(STEP_IDS))
    part.put(STEP_IDS, x=torch.arange(len(STEP_IDS)))
    return part


def first_wrong(wrong: Sequence[str], got: Mapping[str, object]) -> str:
    """Return how many rows are wrong, and what the first of them has; "" if none is."""
    return f"{len(wrong)} wrong, first {wrong[0]}: {got.get(wrong[0])}" if wrong else ""

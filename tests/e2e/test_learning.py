"""A tiny policy learns through a plane, with three seeds."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from rlconform.contract import DataPlaneClient
from rlconform.grpo.config import load_config
from rlconform.grpo.plane_traffic import Attach

#: Minimum mean reward over the last steps; an untrained policy is near 0.1.
BAR = 0.9
LAST = 10


@pytest.fixture(scope="module")
def plane_name() -> str:
    """One plane is enough: ``test_parity`` shows that training is equal with all planes."""
    return "ray_store"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_reward_rises_above_the_bar(
    runs: Any, owner: DataPlaneClient, attach: Attach, seed: int
) -> None:
    config = load_config("tiny_llama_copy", [f"grpo.seed={seed}", "cluster.dp_size=2"])
    run = runs.plane(config, owner, attach)
    rewards = run.series("train/reward")
    assert statistics.fmean(rewards[:LAST]) < BAR / 2
    assert statistics.fmean(rewards[-LAST:]) > BAR

"""Asynchronous runs through real planes: equal to synchronous ones, and learning."""

from __future__ import annotations

from typing import Any

import pytest

from rlconform.contract import DataPlaneClient
from rlconform.grpo.compare_runs import differences
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.plane_traffic import Attach

#: An engine rounds by its batch, so both runs generate group by group.
BY_GROUP = "generation.batch_size=8"
SHORT = ("grpo.max_num_steps=4", "cluster.dp_size=2", BY_GROUP)
#: The asynchronous configuration corrects for older weights; on-policy it must not matter.
UNCORRECTED = (
    "loss_fn.use_importance_sampling_correction=false",
    "loss_fn.truncated_importance_sampling_ratio=null",
)
ON_POLICY = ("async_rl.sampler.max_lookahead_versions=0", "async_rl.max_inflight_prompts=1")


def on_policy(*overrides: str) -> MasterConfig:
    return load_config("tiny_llama_copy_async", [*SHORT, *UNCORRECTED, *ON_POLICY, *overrides])


@pytest.mark.timeout(180)
def test_on_policy_the_asynchronous_run_equals_the_synchronous_one(
    runs: Any, owner: DataPlaneClient, attach: Attach
) -> None:
    synchronous = runs.plane(load_config("tiny_llama_copy", SHORT), owner, attach)
    asynchronous = runs.plane(on_policy(), owner, attach)
    assert differences(synchronous, asynchronous) == []

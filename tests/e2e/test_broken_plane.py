"""Training through a plane that returns rows in the wrong order runs, but its results differ."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tensordict import TensorDict

from rlconform.certify.target import open_target
from rlconform.contract import DataPlaneClient
from rlconform.grpo.compare_runs import differences
from rlconform.grpo.config import MasterConfig


class Reversing:
    """A client that returns rows in reverse order."""

    def __init__(self, client: DataPlaneClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        return self._client.get_samples(
            sample_ids=sample_ids[::-1], partition_id=partition_id, select_fields=select_fields
        )


def attach_reversing(name: str) -> Any:
    return Reversing(open_target(name, bootstrap=False))


@pytest.fixture(scope="module")
def plane_name() -> str:
    return "ray_store"


@pytest.mark.timeout(180)
def test_scrambled_rows_show_in_the_first_step(
    runs: Any, small: Callable[..., MasterConfig], owner: DataPlaneClient, plane_name: str
) -> None:
    config = small("tiny_llama_copy", "grpo.max_num_steps=2", "policy.packing.mode=none")
    in_memory = runs.legacy(config)
    scrambled = runs.plane(config, owner, partial(attach_reversing, plane_name))
    found = differences(in_memory, scrambled)
    assert any(line.startswith("step 1: train/loss") for line in found)
    assert any(line.startswith("last weights") for line in found)

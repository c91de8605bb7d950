"""The check that Ray has enough resources runs before any actor starts."""

from __future__ import annotations

import pytest

from rlconform.grpo.actors import missing_resources
from rlconform.grpo.config import ClusterConfig


@pytest.mark.parametrize(
    ("device", "there", "said"),
    [
        ("cpu", {"CPU": 5.0}, ""),
        ("cpu", {"CPU": 4.0}, "takes 5 CPUs, and Ray has 4 "),
        ("cuda", {"CPU": 5.0, "GPU": 4.0}, ""),
        ("cuda", {"CPU": 5.0, "GPU": 3.0}, "takes 4 GPUs, and Ray has 3 "),
        ("cuda", {"CPU": 5.0}, "takes 4 GPUs, and Ray has 0 "),
    ],
)
def test_ranks_without_a_place_are_told(device: str, there: dict[str, float], said: str) -> None:
    message = missing_resources(
        ClusterConfig.model_validate({"dp_size": 4, "device": device}), there
    )
    assert said in message
    assert bool(message) is bool(said)

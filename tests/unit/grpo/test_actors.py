"""Checks of the actors that need no actor: Ray's resources, and digests of weights."""

from __future__ import annotations

import pytest

from rlconform.grpo.actors import missing_resources, torn_weights
from rlconform.grpo.config import ClusterConfig


@pytest.mark.parametrize(
    ("device", "rollout_workers", "there", "said"),
    [
        ("cpu", 1, {"CPU": 5.0}, ""),
        ("cpu", 1, {"CPU": 4.0}, "takes 5 CPUs, and Ray has 4 "),
        ("cpu", 3, {"CPU": 7.0}, ""),
        ("cpu", 3, {"CPU": 6.0}, "takes 7 CPUs, and Ray has 6 "),
        ("cuda", 1, {"CPU": 5.0, "GPU": 4.0}, ""),
        ("cuda", 1, {"CPU": 5.0, "GPU": 3.0}, "takes 4 GPUs, and Ray has 3 "),
        ("cuda", 1, {"CPU": 5.0}, "takes 4 GPUs, and Ray has 0 "),
        # A rollout worker takes a tenth of a GPU, and there is one tenth beside each rank.
        ("cuda", 4, {"CPU": 8.0, "GPU": 4.0}, ""),
        ("cuda", 5, {"CPU": 9.0, "GPU": 4.0}, "takes 5 GPUs, and Ray has 4 "),
        ("cuda", 14, {"CPU": 18.0, "GPU": 5.0}, ""),
        ("cuda", 15, {"CPU": 19.0, "GPU": 5.0}, "takes 6 GPUs, and Ray has 5 "),
    ],
)
def test_actors_without_a_place_are_told(
    device: str, rollout_workers: int, there: dict[str, float], said: str
) -> None:
    cluster = {"dp_size": 4, "rollout_workers": rollout_workers, "device": device}
    message = missing_resources(ClusterConfig.model_validate(cluster), there)
    assert said in message
    assert bool(message) is bool(said)


def test_workers_with_other_weights_are_named() -> None:
    assert torn_weights(4, "aa", {0: "aa", 1: "aa"}) == ""
    message = torn_weights(4, "aa", {0: "aa", 1: "bb", 3: "cc"})
    assert message == (
        "weights of version 4: policy rank 0 sent aa, rollout worker 1 holds bb, "
        "rollout worker 3 holds cc"
    )
    # Workers that agree with each other may still differ from the policy.
    assert "worker 0 holds bb, rollout worker 1 holds bb" in torn_weights(
        4, "aa", {0: "bb", 1: "bb"}
    )

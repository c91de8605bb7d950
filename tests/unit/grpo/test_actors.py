"""Checks of the actors that need no actor: digests of weights."""

from __future__ import annotations

from rlconform.grpo.actors import torn_weights


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

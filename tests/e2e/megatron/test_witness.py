"""The witness on Megatron: each row has a gradient as often as it was trained, in each layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tensordict import TensorDict

from rlconform.contract import DataPlaneClient
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.trainers.plane_policy import TRAIN_PARTITION, PlanePolicy
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.plane import kv_first_write, mint_sample_ids

pytestmark = pytest.mark.timeout(300)

#: A row that the fixture ``rows`` masks, and one without advantages.
MASKED, ZERO_ADVANTAGE = 5, 7


@pytest.mark.parametrize("packing", ["none", "sequence_packing"])
@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ("tiny_llama_copy", "tp2"),
        ("tiny_llama_copy", "dp2"),
        ("tiny_moe_copy", "pp2"),
        ("tiny_moe_copy", "ep2"),
    ],
)
def test_the_witness_shows_what_was_trained(
    groups: Callable[[int], RunActors],
    configure: Callable[..., MasterConfig],
    owner: DataPlaneClient,
    attach: Attach,
    rows: TensorDict,
    model: str,
    layout: str,
    packing: str,
) -> None:
    config = configure(
        model,
        layout,
        f"policy.packing.mode={packing}",
        "policy.witness=true",
        "policy.train_global_batch_size=16",
        "loss_fn.reference_policy_kl_penalty=0.0",
    )
    groups(2).workers.all(PolicyWorker.build, config)
    written: Any = rows.clone()
    written["advantages"][ZERO_ADVANTAGE] = 0
    policy = PlanePolicy(groups(2), config, owner, attach, 0)
    try:
        policy.prepare_step(num_samples=16, group_size=4)
        meta = kv_first_write(owner, written, mint_sample_ids("abcd", 4), TRAIN_PARTITION)
        policy.get_logprobs_from_meta(meta)  # on policy, so that no token is clipped
        policy.train_from_meta(meta)
        silent = {meta.sample_ids[MASKED], meta.sample_ids[ZERO_ADVANTAGE]}
        assert policy.witnessed() == {name: 1 for name in meta.sample_ids if name not in silent}
        assert policy.unwitnessed() == silent
        policy.finish_step(meta)
    finally:
        policy.shutdown()

"""An update does not depend on the number of ranks: 1, 2 and 4 ranks train on one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS
from rlconform.grpo.config import ClusterConfig, MasterConfig
from rlconform.grpo.failures import WorkerLost
from rlconform.grpo.trainers.legacy_policy import LegacyPolicy
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.worker_group import WorkerGroup

pytestmark = pytest.mark.timeout(180)

N, WIDTH = 16, 12


@pytest.fixture(scope="module")
def groups(runs: Any) -> Iterator[dict[int, WorkerGroup]]:
    """A worker group per number of ranks; that of two ranks is shared with other tests."""
    one, four = (WorkerGroup(PolicyWorker, ClusterConfig(dp_size=world)) for world in (1, 4))
    yield {1: one, 2: runs.legacy_actors.workers, 4: four}
    one.shutdown()
    four.shutdown()


def batch() -> TensorDict:
    """Rows of several lengths, with all columns that training reads."""
    draws = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, WIDTH + 1, (N,), generator=draws)
    valid = torch.arange(WIDTH) < lengths[:, None]
    per_token = ("generation_logprobs", "prev_logprobs", "reference_policy_logprobs", "advantages")
    noise = {name: torch.randn((N, WIDTH), generator=draws) * valid for name in per_token}
    return TensorDict(
        {
            INPUT_IDS: torch.randint(10, (N, WIDTH), generator=draws) * valid,
            INPUT_LENGTHS: lengths,
            "token_mask": (valid & (torch.arange(WIDTH) >= 2)).int(),
            "sample_mask": (torch.arange(N) != 5).float(),
            **noise,
        },
        batch_size=[N],
    )


@pytest.mark.parametrize("packing", ["none", "sequence_packing", "dynamic_batching"])
@pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])
def test_updates_and_logprobs_agree(
    groups: dict[int, WorkerGroup],
    small: Callable[..., MasterConfig],
    parallelism: str,
    packing: str,
) -> None:
    config = small(
        "tiny_moe_copy",
        f"policy.parallelism={parallelism}",
        f"policy.packing.mode={packing}",
        "policy.optimizer.eps=1.0e-3",  # otherwise rounding errors alone change weights
    )
    losses, norms, logprobs = [], [], []
    for group in groups.values():
        group.all(PolicyWorker.build, config)
        policy = LegacyPolicy(group, config)
        logprobs.append(policy.get_logprobs(batch()))
        updates = policy.train(batch())
        losses.append([update["loss"] for update in updates])
        norms.append([update["grad_norm"] for update in updates])
    for other in range(1, len(groups)):
        torch.testing.assert_close(logprobs[other], logprobs[0], rtol=1e-5, atol=1e-5)
        assert losses[other] == pytest.approx(losses[0], rel=1e-4)
        assert norms[other] == pytest.approx(norms[0], rel=1e-4)
    assert len(set(norms[0])) == 2


def test_a_rank_that_dies_fails_the_call_and_not_the_machine(
    runs: Any, small: Callable[..., MasterConfig]
) -> None:
    assert runs.legacy_actors is not None  # for its Ray
    group = WorkerGroup(MortalWorker, ClusterConfig(dp_size=2, timeout_s=60))
    try:
        group.all(PolicyWorker.build, small("tiny_llama_copy"))
        with pytest.raises(WorkerLost, match="die"):
            group.each(MortalWorker.die_as, [(1,), (1,)])
    finally:
        group.shutdown()


class MortalWorker(PolicyWorker):
    """A rank that can exit in the middle of a step."""

    def die_as(self, rank: int) -> None:
        """Exit on this rank; the others wait for it in a collective."""
        import os

        if self.rank == rank:
            os._exit(1)
        torch.distributed.barrier()

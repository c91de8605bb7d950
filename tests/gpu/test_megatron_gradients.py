"""Gradients of Megatron on a GPU are those of the torch worker, weight by weight.

A total that disagrees doesn't tell why, so a failure lists the weights that differ most.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.certify.scenarios.training_actors import SMALL
from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS
from rlconform.grpo.config import ClusterConfig, load_config
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.worker_group import WorkerGroup

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

#: Of a weight's gradient, relative to the norm of all gradients, in float32.
TOLERANCE = 1e-3
N, WIDTH = 16, 12
PAD = 0  # of the tiny models

Gradients = dict[str, Tensor]


class GradientRank(PolicyWorker):
    """The only rank of a run, which returns gradients by the names of the weights."""

    def gradients(self, rows: TensorDict) -> Gradients:
        """Run the rows forward and backward in micro-batches; the weights are lost."""
        policy: Any = self.policy
        policy.begin_train_step()
        policy.train_microbatches(rows, {})
        with torch.no_grad():
            for weight in policy.model.parameters():
                gradient = getattr(weight, "main_grad", weight.grad)
                weight.zero_() if gradient is None else weight.copy_(gradient)
        policy.abort_train_step()
        gradients: Gradients = policy.weights()
        return gradients


@pytest.fixture(scope="module")
def rank(gpu_ray: int) -> Iterator[WorkerGroup]:
    """A rank on the first of the GPUs; its tests are skipped without megatron-core."""
    assert gpu_ray > 0
    if importlib.util.find_spec("megatron") is None:
        pytest.skip("megatron-core is not installed")
    group = WorkerGroup(GradientRank, ClusterConfig(dp_size=1, device="cuda"))
    yield group
    group.shutdown()


def batch(*, pads: bool) -> TensorDict:
    """Rows of several lengths; with ``pads`` two have the pad token within them."""
    draws = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, WIDTH + 1, (N,), generator=draws)
    valid = torch.arange(WIDTH) < lengths[:, None]
    per_token = ("generation_logprobs", "prev_logprobs", "reference_policy_logprobs", "advantages")
    noise = {name: torch.randn((N, WIDTH), generator=draws) * valid for name in per_token}
    ids = torch.randint(4, 14, (N, WIDTH), generator=draws) * valid
    if pads:
        ids[2, 2] = ids[9, 1] = PAD
    return TensorDict(
        {
            INPUT_IDS: ids,
            INPUT_LENGTHS: lengths,
            "token_mask": (valid & (torch.arange(WIDTH) >= 2)).int(),
            "sample_mask": torch.ones(N),
            **noise,
        },
        batch_size=[N],
    )


def table(torch_worker: Gradients, megatron: Gradients) -> tuple[float, str]:
    """Return the largest difference, and a line for each of the five weights that differ most."""
    total = torch.stack([each.norm() for each in torch_worker.values()]).norm()
    rows = sorted(
        (
            float((megatron[name] - wanted).norm() / total),
            f"{name}: {wanted.norm():.6g} by torch, {megatron[name].norm():.6g} by Megatron",
        )
        for name, wanted in torch_worker.items()
    )
    other = torch.stack([each.norm() for each in megatron.values()]).norm()
    lines = [f"{text}, {share:.2e} of all" for share, text in rows[:-6:-1]]
    header = f"norm of all gradients: {total:.6g} by torch, {other:.6g} by Megatron"
    return rows[-1][0], "\n".join([header, *lines])


@pytest.mark.parametrize("pads", [False, True], ids=["no pad token", "pad tokens"])
@pytest.mark.parametrize("model", ["tiny_llama_copy", "tiny_moe_copy"])
def test_each_gradient_is_that_of_the_torch_worker(
    rank: WorkerGroup, model: str, pads: bool
) -> None:
    def gradients(*overrides: str) -> Gradients:
        options = (*SMALL, "cluster.dp_size=1", "cluster.device=cuda", *overrides)
        rank.all(PolicyWorker.build, load_config(model, options))
        (found,) = rank.all(GradientRank.gradients, batch(pads=pads))
        assert isinstance(found, dict)
        return found

    wanted, got = gradients(), gradients("policy.megatron_cfg.enabled=true")
    assert got.keys() == wanted.keys()
    difference, lines = table(wanted, got)
    assert difference < TOLERANCE, lines

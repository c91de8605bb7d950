"""A rank with router replay: passes agree with generation, layouts, missing columns, gradients."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS, ROUTED_EXPERTS
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.router_replay.canaries import canary_routes
from rlconform.grpo.router_replay.route_format import RouteFormat, RouterReplayError
from rlconform.grpo.workers.policy_model import PolicyModel
from tests.unit.grpo.test_policy_worker import LENGTHS, WIDTH, planned, rows

pytestmark = pytest.mark.usefixtures("world")

CPU = torch.device("cpu")
TINY = RouteFormat(layers=2, top_k=2, experts=8)


def config(*overrides: str) -> MasterConfig:
    return load_config(
        "tiny_moe_copy",
        [
            "grpo.num_prompts_per_step=4",
            "grpo.num_generations_per_prompt=2",
            "loss_fn.reference_policy_kl_penalty=0.1",
            "policy.router_replay.enabled=true",
            "policy.train_micro_batch_size=3",
            "policy.logprob_batch_size=3",
            "policy.packing.train_mb_tokens=16",
            "policy.packing.logprob_mb_tokens=20",
            *overrides,
        ],
    )


def routed_rows() -> TensorDict:
    """Eight rows whose tokens have canary routes, but for the last of each row."""
    batch = rows()
    routes = canary_routes(len(LENGTHS) * WIDTH, TINY).view(len(LENGTHS), WIDTH, 2, 2)
    for row, length in zip(routes, LENGTHS, strict=True):
        row[length - 1 :] = TINY.missing
    return batch.set(ROUTED_EXPERTS, routes)


def logprobs(*overrides: str) -> Tensor:
    conf = config(*overrides)
    batch, packing = planned(conf, routed_rows(), "logprob")
    got = PolicyModel(conf, CPU).logprobs(batch, packing)
    order = batch[INPUT_LENGTHS].argsort(stable=True)
    return got[order]


def gradients(*overrides: str) -> dict[str, Tensor]:
    conf = config(*overrides)
    batch, packing = planned(conf, routed_rows(), "train")
    policy = PolicyModel(conf, CPU)
    policy.begin_train_step()
    policy.train_microbatches(batch, packing)
    return {name: w.grad for name, w in policy.model.named_parameters() if w.grad is not None}


OTHERS = (
    ("policy.packing.mode=sequence_packing",),
    ("policy.packing.mode=sequence_packing", "policy.packing.sequence_length_round=4"),
    ("policy.packing.mode=dynamic_batching",),
    ("policy.train_micro_batch_size=1", "policy.logprob_batch_size=8"),
    ("policy.activation_checkpointing=true",),
    ("policy.activation_checkpointing=true", "policy.packing.mode=sequence_packing"),
)


@pytest.mark.parametrize("options", OTHERS, ids=" ".join)
def test_layouts_and_micro_batches_change_no_logprob_and_no_gradient(
    options: tuple[str, ...],
) -> None:
    """Routes of another token would: see the last test."""
    torch.testing.assert_close(logprobs(*options), logprobs(), atol=1e-5, rtol=1e-5)
    expected, got = gradients(), gradients(*options)
    assert got.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, atol=1e-4, rtol=1e-3)


def test_a_whole_step_trains_and_evaluates() -> None:
    conf = config("policy.activation_checkpointing=true")
    policy, batch = PolicyModel(conf, CPU), routed_rows()
    (evaluated,) = policy.evaluate(batch, {}, 1)
    (trained,) = policy.train(batch, {}, 1)
    assert trained["grad_norm"] > 0
    assert trained["loss"] == pytest.approx(evaluated["loss"], abs=1e-6)


def test_the_reference_chooses_its_own_experts() -> None:
    conf, batch = config(), routed_rows()
    free = PolicyModel(config("policy.router_replay.enabled=false"), CPU)
    replayed = PolicyModel(conf, CPU)
    assert torch.equal(replayed.reference_logprobs(batch, {}), free.logprobs(batch, {}))
    assert not torch.equal(replayed.logprobs(batch, {}), free.logprobs(batch, {}))


@pytest.mark.parametrize("call", ["logprobs", "train", "evaluate"])
def test_rows_without_the_column_are_refused(call: str) -> None:
    policy, batch = PolicyModel(config(), CPU), rows()
    arguments: Counter[str] = Counter({"logprobs": 0, "train": 1, "evaluate": 1})
    method: Any = getattr(policy, call)
    with pytest.raises(RouterReplayError, match="needs the column 'routed_experts'; the rows have"):
        method(batch, {}, *([1] if arguments[call] else []))


def test_a_hole_within_a_row_is_refused() -> None:
    batch = routed_rows()
    batch[ROUTED_EXPERTS][0, 3] = TINY.missing
    with pytest.raises(RouterReplayError, match="token 3 of row 0"):
        PolicyModel(config(), CPU).logprobs(batch, {})


def test_a_dense_model_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="Qwen3-MoE"):
        PolicyModel(config("policy.model_name=tiny-llama"), CPU)


def test_routes_of_another_token_change_the_logprobs() -> None:
    batch = routed_rows()
    expected = PolicyModel(config(), CPU).logprobs(batch, {})
    for row, length in zip(batch[ROUTED_EXPERTS], LENGTHS, strict=True):
        row[: length - 1] = row[: length - 1].roll(1, dims=0)
    got = PolicyModel(config(), CPU).logprobs(batch, {})
    assert (got - expected).abs().max() > 0.01
    assert batch[INPUT_IDS].shape == got.shape

"""Which rows gave an update a gradient, how often, and that counting them changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.contract import ConfigError
from rlconform.contract.fields import (
    ADVANTAGES,
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    PREV_LOGPROBS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.models.tiny import VOCABULARY
from rlconform.grpo.trainers.legacy_policy import LegacyPolicy
from rlconform.grpo.workers.data_parallel import whole_weights
from rlconform.grpo.workers.policy_model import PolicyModel
from rlconform.grpo.workers.witness import Witness

pytestmark = pytest.mark.usefixtures("world")

IDS = ["a_g0", "a_g1", "b_g0", "b_g1", "c_g0", "c_g1"]
WIDTH = 7

parallelisms = pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])


def config(*overrides: str) -> MasterConfig:
    return load_config(
        "tiny_llama_copy",
        [
            "grpo.num_prompts_per_step=3",
            "grpo.num_generations_per_prompt=2",
            "loss_fn.reference_policy_kl_penalty=0.0",
            "policy.packing={mode: none, train_mb_tokens: 30, logprob_mb_tokens: 30}",
            "policy.train_micro_batch_size=2",
            "policy.optimizer.weight_decay=0.1",
            *overrides,
        ],
    )


def policy_of(*overrides: str) -> PolicyModel:
    return PolicyModel(config(*overrides), torch.device("cpu"))


def rows() -> TensorDict:
    """Six rows on policy; that of b_g0 is masked, and the advantages of c_g1 are 0."""
    draws = torch.Generator().manual_seed(0)
    shape = (len(IDS), WIDTH)
    old = torch.full(shape, -4.0)
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, 0.0])
    return TensorDict(
        {
            INPUT_IDS: torch.randint(VOCABULARY, shape, generator=draws),
            INPUT_LENGTHS: torch.full((len(IDS),), WIDTH),
            GENERATION_LOGPROBS: old,
            PREV_LOGPROBS: old,
            ADVANTAGES: advantages[:, None].expand(shape).contiguous(),
            TOKEN_MASK: (torch.arange(WIDTH) >= 3).int().expand(shape).contiguous(),
            SAMPLE_MASK: torch.tensor([1.0, 1, 0, 1, 1, 1]),
        },
        batch_size=[len(IDS)],
    )


def on_policy(policy: PolicyModel, batch: TensorDict) -> TensorDict:
    """The rows with the policy's own logprobs as old ones, so that no token is clipped."""
    return batch.set(PREV_LOGPROBS, policy.logprobs(batch, {}))


@parallelisms
@pytest.mark.parametrize("mode", ["none", "sequence_packing"])
def test_it_changes_no_bit_of_an_update(parallelism: str, mode: str) -> None:
    updates, weights, moments = [], [], []
    for witness in ("true", "false"):
        policy = policy_of(
            f"policy.parallelism={parallelism}",
            f"policy.packing.mode={mode}",
            f"policy.witness={witness}",
        )
        plan: dict[str, Any] = {}
        if mode == "sequence_packing":
            spans, tokens = [[0, 4], [4, 6]], [4 * WIDTH, 2 * WIDTH]
            plan = {
                "micro_batch_indices": [spans],
                "micro_batch_lengths": [tokens],
                "elem_counts_per_gb": [len(IDS)],
            }
        updates.append([policy.train(rows(), plan, 1, sample_ids=IDS) for _ in range(3)])
        weights.append(whole_weights(policy.model))
        moments.append(len(policy.optimizer.state))
    assert updates[0] == updates[1]
    assert updates[0][0][0]["grad_norm"] > 0
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(leaf, weights[1][name]) for name, leaf in weights[0].items())
    assert moments[0] == moments[1]


@parallelisms
def test_rows_with_a_gradient_are_seen_once(parallelism: str) -> None:
    policy = policy_of(f"policy.parallelism={parallelism}", "policy.witness=true")
    policy.train(on_policy(policy, rows()), {}, 1, sample_ids=IDS)
    masked, zero_advantage = "b_g0", "c_g1"
    expected = dict.fromkeys(IDS, 1) | {masked: 0, zero_advantage: 0}
    assert policy.witnessed == expected


def test_a_kl_penalty_gives_rows_of_zero_advantage_a_gradient() -> None:
    policy = policy_of("policy.witness=true", "loss_fn.reference_policy_kl_penalty=0.1")
    batch = on_policy(policy, rows()).set("reference_policy_logprobs", torch.full((6, WIDTH), -4.0))
    policy.train(batch, {}, 1, sample_ids=IDS)
    assert policy.witnessed == dict.fromkeys(IDS, 1) | {"b_g0": 0}


@pytest.mark.parametrize("twice", [[0, 1, 2, 3, 0, 5], [0, 0, 2, 3, 4, 5]])
def test_a_row_that_was_trained_twice_is_counted_twice(twice: list[int]) -> None:
    """In two micro-batches, and in one."""
    policy = policy_of("policy.witness=true")
    ids = [IDS[row] for row in twice]
    policy.train(on_policy(policy, rows()[torch.tensor(twice)]), {}, 1, sample_ids=ids)
    assert policy.witnessed == {**dict.fromkeys(ids, 1), "a_g0": 2, "b_g0": 0, "c_g1": 0}


def test_chunks_of_a_step_count_together_and_dropped_ones_not_at_all() -> None:
    policy = policy_of("policy.witness=true")
    batch = on_policy(policy, rows())
    policy.begin_train_step()
    policy.train_microbatches(batch[3:], {}, IDS[3:])
    policy.abort_train_step()
    policy.begin_train_step()
    policy.train_microbatches(batch[:2], {}, IDS[:2])
    policy.train_microbatches(batch[1:2], {}, IDS[1:2])
    assert policy.witnessed == {}
    policy.finish_train_step()
    assert policy.witnessed == {"a_g0": 1, "a_g1": 2}


def test_global_batches_of_one_call_count_together() -> None:
    policy = policy_of("policy.witness=true", "policy.train_global_batch_size=2")
    policy.train(on_policy(policy, rows()), {}, 3, sample_ids=IDS)
    assert policy.witnessed.keys() == set(IDS)
    policy.train(on_policy(policy, rows()[:2]), {}, 1, sample_ids=IDS[:2])
    assert policy.witnessed == {"a_g0": 1, "a_g1": 1}


def test_equal_and_opposite_gradients_of_a_row_do_not_cancel() -> None:
    witness = Witness()
    logprobs = witness.add_zeros(torch.zeros(2, 2, requires_grad=True), ["a", "b"])
    (logprobs[0, 0] - logprobs[0, 1]).backward()
    assert witness.passes() == {"a": 1, "b": 0}


def test_rows_without_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="sample ids"):
        policy_of("policy.witness=true").train(rows(), {}, n_batches=1)
    no_workers: Any = None
    with pytest.raises(ConfigError, match="data plane"):
        LegacyPolicy(no_workers, config("policy.witness=true"))

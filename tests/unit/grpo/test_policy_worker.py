"""One rank of a policy: micro-batches, logprobs and gradients, updates of the weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.contract.fields import (
    ADVANTAGES,
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.grpo.config import MasterConfig, SchedulerConfig, load_config
from rlconform.grpo.models.tiny import VOCABULARY
from rlconform.grpo.workers.checkpoint import load_policy, save_policy
from rlconform.grpo.workers.data_parallel import clip_gradients, sum_over_ranks
from rlconform.grpo.workers.microbatches import (
    TokenSpan,
    plan_microbatches,
    plan_misfit,
    slice_microbatch,
)
from rlconform.grpo.workers.optimizer import learning_rate_factor
from rlconform.grpo.workers.policy_model import PolicyModel
from rlconform.plane.sharding import plan_shards

pytestmark = pytest.mark.usefixtures("world")

CPU = torch.device("cpu")
LENGTHS = [9, 3, 6, 4, 8, 5, 7, 2]
WIDTH = 10


def config(*overrides: str, model: str = "tiny_llama_copy") -> MasterConfig:
    return load_config(
        model,
        [
            "grpo.num_prompts_per_step=4",
            "grpo.num_generations_per_prompt=2",
            "loss_fn.reference_policy_kl_penalty=0.1",
            "policy.packing.train_mb_tokens=16",
            "policy.packing.logprob_mb_tokens=20",
            *overrides,
        ],
    )


def rows(seed: int = 0) -> TensorDict:
    """Eight rows of random tokens, with all columns that training reads."""
    draws = torch.Generator().manual_seed(seed)
    shape = (len(LENGTHS), WIDTH)
    valid = torch.arange(WIDTH) < torch.tensor(LENGTHS)[:, None]
    trained = valid & (torch.arange(WIDTH) >= 2)

    def noise() -> Tensor:
        return torch.randn(shape, generator=draws) * valid

    ids = torch.randint(VOCABULARY, shape, generator=draws)
    return TensorDict(
        {
            INPUT_IDS: torch.where(valid, ids, 0),
            INPUT_LENGTHS: torch.tensor(LENGTHS),
            GENERATION_LOGPROBS: noise() - 4,
            PREV_LOGPROBS: noise() - 4,
            REFERENCE_POLICY_LOGPROBS: noise() - 4,
            ADVANTAGES: noise(),
            TOKEN_MASK: trained.int(),
            SAMPLE_MASK: torch.tensor([1.0, 1, 1, 0, 1, 1, 1, 1]),
        },
        batch_size=[len(LENGTHS)],
    )


def planned(conf: MasterConfig, batch: TensorDict, stage: Any) -> tuple[TensorDict, dict[str, Any]]:
    """Shard the batch for one rank; return its rows in the plan's order, and the plan."""
    (plan,) = plan_shards(
        LENGTHS,
        1,
        sequence_packing=conf.policy.packing.sequence_packing(stage),
        dynamic_batching=conf.policy.packing.dynamic_batching(stage),
    )
    return batch[plan.rows], plan.packing


# -- micro-batches --------------------------------------------------------------------------


def test_without_a_plan_each_global_batch_is_cut_by_itself() -> None:
    assert plan_microbatches(10, 7, {}, n_batches=2, microbatch_rows=3) == [
        [TokenSpan(0, 3, 7), TokenSpan(3, 5, 7)],
        [TokenSpan(5, 8, 7), TokenSpan(8, 10, 7)],
    ]


def test_a_plan_is_counted_from_the_first_row_of_its_global_batch() -> None:
    packing = {
        "micro_batch_indices": [[[0, 2], [2, 3]], [[0, 3]]],
        "micro_batch_lengths": [[8, 5], [12]],
        "elem_counts_per_gb": [3, 3],
    }
    assert plan_microbatches(6, 9, packing, n_batches=2, microbatch_rows=1) == [
        [TokenSpan(0, 2, 8), TokenSpan(2, 3, 5)],
        [TokenSpan(3, 6, 12)],
    ]


def test_a_plan_of_other_rows_is_refused() -> None:
    packing = {"micro_batch_indices": [], "micro_batch_lengths": [], "elem_counts_per_gb": [3]}
    with pytest.raises(ValueError, match="3 rows"):
        plan_microbatches(4, 9, packing, n_batches=1, microbatch_rows=1)
    with pytest.raises(ValueError, match="divide"):
        plan_microbatches(5, 9, {}, n_batches=2, microbatch_rows=1)


def test_rows_that_do_not_fit_into_their_plan_are_named() -> None:
    lengths, plan = [3, 5, 4], [[TokenSpan(0, 2, 8)], [TokenSpan(2, 3, 4)]]
    assert plan_misfit(lengths, plan, "packed", 1) == ""
    assert plan_misfit(lengths, plan, "padded", 1) == ""
    assert "rows 0 to 1 to fit into their planned 8 tokens; got 10, packed" in plan_misfit(
        lengths, plan, "packed", 2
    )
    assert "rows 2 to 2 to fit into their planned 3 tokens; got 4, padded" in plan_misfit(
        lengths, [[TokenSpan(2, 3, 3)]], "padded", 1
    )


@pytest.mark.parametrize(("layout", "width"), [("padded", 7), ("packed", 6)])
def test_a_cut_is_as_wide_as_planned_or_as_its_longest_row(layout: Any, width: int) -> None:
    part = slice_microbatch(rows(), TokenSpan(1, 4, 7), layout)
    assert part[INPUT_IDS].shape == part[ADVANTAGES].shape == (3, width)
    assert part[SAMPLE_MASK].tolist() == [1.0, 1.0, 0.0]


# -- logprobs and gradients ----------------------------------------------------------------------


@pytest.mark.parametrize("model", ["tiny_llama_copy", "tiny_moe_copy"])
@pytest.mark.parametrize("mode", ["sequence_packing", "dynamic_batching"])
def test_logprobs_are_those_of_rows_run_one_by_one(mode: str, model: str) -> None:
    conf = config(f"policy.packing.mode={mode}", model=model)
    policy = PolicyModel(conf, CPU)
    batch, packing = planned(conf, rows(), "logprob")
    got = policy.logprobs(batch, packing)
    for row, ids, length in zip(got, batch[INPUT_IDS], batch[INPUT_LENGTHS].tolist(), strict=True):
        with torch.no_grad():
            logits = policy.model(ids[None, :length]).logits[0].double()
        naive = [0.0] + [
            float(torch.log_softmax(logits[t - 1], -1)[ids[t]]) for t in range(1, length)
        ]
        torch.testing.assert_close(row[:length], torch.tensor(naive))
        assert row[length:].eq(0).all()


def gradients(policy: PolicyModel) -> Tensor:
    found = [parameter.grad for parameter in policy.model.parameters()]
    return torch.cat([gradient.flatten() for gradient in found if gradient is not None])


@pytest.mark.parametrize("token_level", [True, False])
@pytest.mark.parametrize("model", ["tiny_llama_copy", "tiny_moe_copy"])
def test_gradients_do_not_depend_on_how_a_batch_is_cut(model: str, token_level: bool) -> None:
    got: dict[str, Tensor] = {}
    losses = []
    cuts = {
        "1 chunk": ["policy.train_micro_batch_size=8"],
        "2 chunks": ["policy.train_micro_batch_size=4"],
        "4 chunks": ["policy.train_micro_batch_size=2"],
        "packed": ["policy.packing.mode=sequence_packing"],
        "by length": ["policy.packing.mode=dynamic_batching"],
    }
    for name, overrides in cuts.items():
        level = f"loss_fn.token_level_loss={str(token_level).lower()}"
        conf = config(*overrides, level, "policy.max_grad_norm=null", model=model)
        policy = PolicyModel(conf, CPU)
        policy.model.double()  # makes rounding errors negligible
        (update,) = policy.train(*planned(conf, rows(), "train"), n_batches=1)
        got[name] = gradients(policy)
        losses.append(update["loss"])
        assert update["grad_norm"] == pytest.approx(float(got[name].norm()))
    largest = float(got["1 chunk"].abs().max())
    assert largest > 0
    for gradient in got.values():  # rounding of the float32 logprobs remains
        torch.testing.assert_close(gradient, got["1 chunk"], rtol=0, atol=1e-6 * largest)
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-6)


def test_masked_rows_and_prompts_leave_no_trace() -> None:
    conf = config("policy.packing.mode=sequence_packing")
    changed = rows()
    untrained = ~(changed[TOKEN_MASK].bool() & changed[SAMPLE_MASK].bool()[:, None])
    for name in (ADVANTAGES, PREV_LOGPROBS, GENERATION_LOGPROBS, REFERENCE_POLICY_LOGPROBS):
        changed[name] = torch.where(untrained, 1e3, changed[name])
    of_each = []
    for batch in (rows(), changed):
        policy = PolicyModel(conf, CPU)
        policy.train(*planned(conf, batch, "train"), n_batches=1)
        of_each.append(gradients(policy))
    assert torch.equal(*of_each)


# -- updates -------------------------------------------------------------------------------------


def test_each_global_batch_is_an_update_of_its_own() -> None:
    conf = config("policy.train_global_batch_size=4")
    policy = PolicyModel(conf, CPU)
    before = {name: leaf.clone() for name, leaf in policy.model.state_dict().items()}
    updates = policy.train(rows(), {}, n_batches=2)
    assert [update["samples"] for update in updates] == [3.0, 3.0]  # one masked, one too short
    assert [update["lr"] for update in updates] == [conf.policy.optimizer.lr] * 2
    assert any(not torch.equal(before[n], leaf) for n, leaf in policy.model.state_dict().items())
    reference = policy.reference
    assert reference is not None
    assert all(torch.equal(before[n], leaf) for n, leaf in reference.state_dict().items())


def test_a_reference_is_kept_only_where_the_loss_asks_for_it() -> None:
    policy = PolicyModel(config("loss_fn.reference_policy_kl_penalty=0.0"), CPU)
    batch = rows().exclude(REFERENCE_POLICY_LOGPROBS)
    (update,) = policy.train(batch, {}, n_batches=1)
    assert "kl_to_reference" not in update
    with pytest.raises(RuntimeError, match="reference_policy_kl_penalty"):
        policy.reference_logprobs(batch, {})


def test_large_gradients_are_clipped_and_told_of_unclipped() -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    assert clip_gradients(model, None) == 5.0
    assert model.weight.grad.tolist() == [[3.0, 4.0]]
    assert clip_gradients(model, 1.0) == 5.0
    assert float(model.weight.grad.norm()) == pytest.approx(1.0)


def test_sums_over_ranks_are_exact_where_float32_is_not() -> None:
    assert sum_over_ranks([2**24 + 1, 0.1], CPU) == [2**24 + 1, 0.1]


@pytest.mark.parametrize(
    ("shape", "factors"),
    [
        ({"name": "constant", "warmup_steps": 2}, [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ({"name": "linear", "warmup_steps": 1, "min_lr_ratio": 0.2}, [1, 1, 0.8, 0.6, 0.4, 0.2]),
        (
            {"name": "cosine", "warmup_steps": 0},
            [0.5 * (1 + math.cos(math.pi * update / 5)) for update in range(6)],
        ),
    ],
)
def test_the_learning_rate_follows_its_schedule(
    shape: dict[str, Any], factors: list[float]
) -> None:
    factor = learning_rate_factor(SchedulerConfig(**shape), n_updates=6)
    assert [factor(update) for update in range(6)] == pytest.approx(factors)
    assert factor(60) == pytest.approx(factors[-1])


@pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])
def test_a_saved_policy_goes_on_as_if_it_had_not_stopped(tmp_path: Path, parallelism: str) -> None:
    conf = config(f"policy.parallelism={parallelism}", "policy.scheduler.name=linear")

    def three_updates(policy: PolicyModel, batches: range) -> list[dict[str, float]]:
        return [policy.train(rows(seed), {}, n_batches=1)[0] for seed in batches]

    whole = three_updates(PolicyModel(conf, CPU), range(6))
    stopped = PolicyModel(conf, CPU)
    three_updates(stopped, range(3))
    save_policy(stopped, tmp_path / "policy", rank=0)
    resumed = PolicyModel(conf, CPU)
    load_policy(resumed, tmp_path / "policy", rank=0)
    assert three_updates(resumed, range(3, 6)) == whole[3:]
    with pytest.raises(ConfigError, match="fewer ranks"):
        load_policy(resumed, tmp_path / "policy", rank=1)

"""Updates whose rows arrive in chunks, on one rank: the same as whole batches, or dropped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS, SAMPLE_MASK, TOKEN_MASK
from rlconform.grpo.config import ClippedPGLossConfig, MasterConfig, load_config
from rlconform.grpo.models.tiny import VOCABULARY
from rlconform.grpo.workers.microbatches import TokenSpan, slice_microbatch
from rlconform.grpo.workers.policy import Metrics
from rlconform.grpo.workers.policy_model import PolicyModel
from rlconform.grpo.workers.train_step import TrainStepError
from rlconform.plane.sharding import plan_shards

pytestmark = pytest.mark.usefixtures("world")

CPU = torch.device("cpu")
LENGTHS = [9, 3, 6, 4, 8, 5, 7, 3]
WIDTH = 10
NOISE = ("generation_logprobs", "prev_logprobs", "reference_policy_logprobs", "advantages")

parallelisms = pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])


def config(*overrides: str) -> MasterConfig:
    return load_config(
        "tiny_moe_copy",
        [
            "grpo.num_prompts_per_step=4",
            "grpo.num_generations_per_prompt=2",
            "loss_fn.reference_policy_kl_penalty=0.1",
            "policy.packing={mode: none, train_mb_tokens: 16, logprob_mb_tokens: 20}",
            "policy.train_micro_batch_size=2",
            "policy.optimizer.eps=1.0e-3",  # otherwise rounding errors alone change weights
            "policy.scheduler.name=linear",
            *overrides,
        ],
    )


def rows(seed: int = 0) -> TensorDict:
    """Eight rows of random tokens, with all columns that training reads; row 3 is masked."""
    draws = torch.Generator().manual_seed(seed)
    shape = (len(LENGTHS), WIDTH)
    valid = torch.arange(WIDTH) < torch.tensor(LENGTHS)[:, None]
    noise = {name: torch.randn(shape, generator=draws) * valid for name in NOISE}
    return TensorDict(
        {
            INPUT_IDS: torch.randint(VOCABULARY, shape, generator=draws) * valid,
            INPUT_LENGTHS: torch.tensor(LENGTHS),
            TOKEN_MASK: (valid & (torch.arange(WIDTH) >= 2)).int(),
            SAMPLE_MASK: (torch.arange(len(LENGTHS)) != 3).float(),
            **noise,
        },
        batch_size=[len(LENGTHS)],
    )


def narrowed(batch: TensorDict) -> TensorDict:
    """The rows padded to the longest of them, as a chunk is."""
    width = int(batch[INPUT_LENGTHS].max())
    return slice_microbatch(batch, TokenSpan(0, batch.batch_size[0], width), "padded")


def in_chunks(policy: PolicyModel, chunks: Sequence[TensorDict], packing: Any = None) -> Metrics:
    """An update whose rows arrive in these chunks."""
    policy.begin_train_step()
    for chunk in chunks:
        policy.train_microbatches(chunk, packing or {})
    return policy.finish_train_step()


def cut(batch: TensorDict, *ends: int) -> list[TensorDict]:
    return [batch[start:stop] for start, stop in pairwise([0, *ends])]


def weights(policy: PolicyModel) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in policy.model.parameters()]


def state(policy: PolicyModel) -> list[Any]:
    """Copies of everything that an update changes."""
    moments = [
        value.clone() if isinstance(value, Tensor) else value
        for of_weight in policy.optimizer.state.values()
        for value in of_weight.values()
    ]
    return [*weights(policy), *moments, policy.schedule.state_dict()]


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a, b) if isinstance(a, Tensor) else a == b
        for a, b in zip(map(whole, one), map(whole, other), strict=True)
    )


def whole(value: Any) -> Any:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


# -- chunks and whole batches --------------------------------------------------------------------


@parallelisms
@pytest.mark.parametrize("token_level", ["true", "false"])
@pytest.mark.parametrize("ends", [[8], [4, 8], [2, 4, 6, 8], [6, 8]], ids=str)
def test_chunks_of_whole_micro_batches_are_the_batch_bit_for_bit(
    ends: list[int], token_level: str, parallelism: str
) -> None:
    conf = config(f"policy.parallelism={parallelism}", f"loss_fn.token_level_loss={token_level}")
    at_once, chunked = PolicyModel(conf, CPU), PolicyModel(conf, CPU)
    start = state(at_once)
    for seed in range(2):
        (expected,) = at_once.train(rows(seed), {}, n_batches=1)
        assert in_chunks(chunked, cut(rows(seed), *ends)) == expected
        assert expected["grad_norm"] > 0
    assert same(state(chunked), state(at_once))
    assert not same(state(chunked), start)


@pytest.mark.parametrize("mode", ["none", "sequence_packing", "dynamic_batching"])
@pytest.mark.parametrize("ends", [[8], [3, 8], [1, 4, 7, 8]], ids=str)
def test_other_chunks_differ_by_rounding_only(ends: list[int], mode: str) -> None:
    """To 1e-5 of the gradient norm and, after a float32 update, 1e-6 of each weight."""
    conf = config(f"policy.packing.mode={mode}", "policy.max_grad_norm=null")
    at_once, chunked = PolicyModel(config("policy.max_grad_norm=null"), CPU), PolicyModel(conf, CPU)
    (expected,) = at_once.train(rows(), {}, n_batches=1)
    chunked.begin_train_step()
    for chunk in map(narrowed, cut(rows(), *ends)):
        (plan,) = plan_shards(
            chunk[INPUT_LENGTHS].tolist(),
            1,
            sequence_packing=conf.policy.packing.sequence_packing("train"),
            dynamic_batching=conf.policy.packing.dynamic_batching("train"),
        )
        chunked.train_microbatches(chunk[plan.rows], plan.packing)
    got = chunked.finish_train_step()
    assert got == pytest.approx(expected, rel=1e-5)
    for one, other in zip(chunked.model.parameters(), at_once.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_logprobs_between_chunks_change_nothing() -> None:
    plain, interrupted = PolicyModel(config(), CPU), PolicyModel(config(), CPU)
    expected = in_chunks(plain, cut(rows(), 4, 8))
    interrupted.begin_train_step()
    for chunk in cut(rows(), 4, 8):
        interrupted.logprobs(chunk, {})
        interrupted.reference_logprobs(chunk, {})
        interrupted.train_microbatches(chunk, {})
    assert interrupted.finish_train_step() == expected
    assert same(state(interrupted), state(plain))


@parallelisms
@pytest.mark.parametrize("token_level", ["true", "false"])
def test_a_step_without_trained_tokens_has_neither_loss_nor_gradient(
    token_level: str, parallelism: str
) -> None:
    conf = config(f"policy.parallelism={parallelism}", f"loss_fn.token_level_loss={token_level}")
    policy = PolicyModel(conf, CPU)
    start = weights(policy)
    masked = rows()
    masked[SAMPLE_MASK] = torch.zeros(8)
    got = in_chunks(policy, cut(masked, 4, 8))
    assert {got[name] for name in ("loss", "grad_norm", "tokens", "samples", "ratio")} == {0.0}
    assert same(weights(policy), start)


# -- the order of the calls ----------------------------------------------------------------------


def test_calls_in_a_wrong_order_are_refused() -> None:
    policy = PolicyModel(config(), CPU)
    policy.abort_train_step()
    with pytest.raises(TrainStepError, match="no train step is open"):
        policy.train_microbatches(rows(), {})
    with pytest.raises(TrainStepError, match="no train step is open"):
        policy.finish_train_step()
    policy.begin_train_step()
    with pytest.raises(TrainStepError, match="at least one chunk"):
        policy.finish_train_step()
    for begin in (policy.begin_train_step, lambda: policy.train(rows(), {}, n_batches=1)):
        with pytest.raises(TrainStepError, match="is open"):
            begin()
    policy.train_microbatches(rows(), {})  # still open
    policy.finish_train_step()
    with pytest.raises(TrainStepError, match="no train step is open"):
        policy.finish_train_step()


@parallelisms
def test_an_aborted_step_leaves_no_trace(parallelism: str) -> None:
    conf = config(f"policy.parallelism={parallelism}", "policy.witness=true")
    policy, plain = PolicyModel(conf, CPU), PolicyModel(conf, CPU)
    ids = [f"a_g{row}" for row in range(8)]
    for each in (policy, plain):
        each.train(rows(), {}, 1, sample_ids=ids)
    before, witnessed = state(policy), policy.witnessed
    policy.begin_train_step()
    policy.train_microbatches(rows(7), {}, ids)
    policy.abort_train_step()
    policy.abort_train_step()
    assert same(state(policy), before)
    assert policy.witnessed == witnessed
    assert all(parameter.grad is None for parameter in policy.model.parameters())
    after = [each.train(rows(1), {}, 1, sample_ids=ids) for each in (policy, plain)]
    assert after[0] == after[1]
    assert same(state(policy), state(plain))


def test_a_step_with_a_chunk_that_failed_cannot_be_finished() -> None:
    policy = PolicyModel(config(), CPU)
    broken = rows()
    broken["advantages"] = broken["advantages"][:, :1]
    before = state(policy)
    policy.begin_train_step()
    policy.train_microbatches(rows(), {})
    with pytest.raises(ValueError, match="advantages"):
        policy.train_microbatches(broken, {})
    policy.train_microbatches(rows(), {})
    with pytest.raises(TrainStepError, match="abort"):
        policy.finish_train_step()
    policy.abort_train_step()
    assert same(state(policy), before)
    with pytest.raises(ValueError, match="advantages"):
        policy.train(broken, {}, n_batches=1)
    policy.train(rows(), {}, n_batches=1)  # no step was left open


# -- options of a call ---------------------------------------------------------------------------


def test_options_of_a_call_replace_those_of_the_configuration() -> None:
    other = ClippedPGLossConfig(
        ratio_clip_min=0.0,
        ratio_clip_max=0.0,
        token_level_loss=False,
        reference_policy_kl_penalty=0.0,
    )
    configured = config(
        "loss_fn={ratio_clip_min: 0.0, ratio_clip_max: 0.0, token_level_loss: false}",
        "loss_fn.reference_policy_kl_penalty=0.0",
        "policy.train_micro_batch_size=4",
    )
    by_call, by_config = PolicyModel(config(), CPU), PolicyModel(configured, CPU)
    batch = rows().exclude("reference_policy_logprobs")
    got = by_call.train(batch, {}, 1, other, 4)
    assert got == by_config.train(batch, {}, n_batches=1)
    assert by_call.evaluate(batch, {}, 1, other, 4) == by_config.evaluate(batch, {}, n_batches=1)
    assert "kl_loss" not in got[0]


def test_micro_batches_of_so_many_rows_are_refused_for_packed_rows() -> None:
    policy = PolicyModel(config("policy.packing.mode=sequence_packing"), CPU)
    for call in (
        lambda: policy.begin_train_step(mbs=2),
        lambda: policy.train(rows(), {}, 1, mbs=2),
        lambda: policy.evaluate(rows(), {}, 1, mbs=2),
    ):
        with pytest.raises(ValueError, match="mbs=2"):
            call()


@parallelisms
def test_an_evaluation_measures_the_loss_and_updates_nothing(parallelism: str) -> None:
    conf = config(f"policy.parallelism={parallelism}", "policy.train_global_batch_size=4")
    policy = PolicyModel(conf, CPU)
    before = state(policy)
    evaluated = policy.evaluate(rows(), {}, n_batches=2)
    assert same(state(policy), before)
    first, _ = policy.train(rows(), {}, n_batches=2)
    assert first.keys() - evaluated[0].keys() == {"grad_norm", "lr"}
    assert evaluated[0].pop("total_flops") == pytest.approx(first["total_flops"] / 3)
    assert evaluated[0] == {name: first[name] for name in evaluated[0]}
    assert evaluated[1]["tokens"] != evaluated[0]["tokens"]

"""Updates whose rows arrive in chunks through a plane, on two ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import (
    ADVANTAGES,
    GLOBAL_FORWARD_PAD_SEQLEN,
    INPUT_IDS,
    INPUT_LENGTHS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.grpo.config import ClippedPGLossConfig, MasterConfig
from rlconform.grpo.models.char_tokenizer import character_tokenizer
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.trainers.base import StageTimer
from rlconform.grpo.trainers.plane_policy import TRAIN_PARTITION, PlanePolicy
from rlconform.grpo.workers.policy import Metrics
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.train_step import TrainStepError
from rlconform.plane import kv_first_write, mint_sample_ids

pytestmark = pytest.mark.timeout(180)

N, WIDTH = 16, 12
MASKED, ZERO_ADVANTAGE = 5, 9

parallelisms = pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])
Start = Callable[..., tuple[PlanePolicy, KVBatchMeta]]
Update = tuple[Metrics, dict[str, Tensor]]


@pytest.fixture(scope="module")
def plane_name() -> str:
    return "ray_store"


@pytest.fixture
def start(
    runs: Any, small: Callable[..., MasterConfig], owner: DataPlaneClient, attach: Attach
) -> Iterator[Start]:
    """``start(*overrides)``: a new policy, and the meta of sixteen rows in the plane."""
    begun: list[tuple[PlanePolicy, KVBatchMeta]] = []

    def start(*overrides: str) -> tuple[PlanePolicy, KVBatchMeta]:
        end_all()
        config = small(
            "tiny_moe_copy",
            "policy.packing.mode=none",
            "policy.train_global_batch_size=16",
            "policy.optimizer.eps=1.0e-3",  # otherwise rounding errors alone change weights
            *overrides,
        )
        runs.plane_actors.workers.all(PolicyWorker.build, config)
        pad = character_tokenizer().pad_token_id
        policy = PlanePolicy(runs.plane_actors, config, owner, attach, int(pad))
        policy.prepare_step(num_samples=N, group_size=4)
        meta = kv_first_write(owner, rows(), mint_sample_ids("abcd", 4), TRAIN_PARTITION)
        begun.append((policy, meta))
        return policy, meta

    def end_all() -> None:
        while begun:
            policy, meta = begun.pop()
            policy.abort_train_step()
            policy.finish_step(meta)
            policy.shutdown()

    yield start
    end_all()


def rows() -> TensorDict:
    """Rows of several lengths, with all columns that training reads."""
    draws = torch.Generator().manual_seed(0)
    lengths = torch.randint(4, WIDTH + 1, (N,), generator=draws)
    valid = torch.arange(WIDTH) < lengths[:, None]
    per_token = ("generation_logprobs", "prev_logprobs", "reference_policy_logprobs")
    noise = {
        name: (torch.randn((N, WIDTH), generator=draws) / 10 - 4) * valid for name in per_token
    }
    advantages = torch.randn((N, 1), generator=draws) * (torch.arange(N) != ZERO_ADVANTAGE)[:, None]
    return TensorDict(
        {
            INPUT_IDS: torch.randint(10, (N, WIDTH), generator=draws) * valid,
            INPUT_LENGTHS: lengths,
            TOKEN_MASK: (valid & (torch.arange(WIDTH) >= 2)).int(),
            SAMPLE_MASK: (torch.arange(N) != MASKED).float(),
            ADVANTAGES: advantages * valid,
            **noise,
        },
        batch_size=[N],
    )


def weights(runs: Any) -> dict[str, Tensor]:
    whole, *_ = runs.plane_actors.workers.all(PolicyWorker.weights)
    return dict(whole)


def in_chunks(policy: PlanePolicy, chunks: Sequence[KVBatchMeta]) -> Metrics:
    policy.begin_train_step()
    for chunk in chunks:
        policy.train_microbatches_from_meta(chunk)
    return policy.finish_train_step()


def cut(meta: KVBatchMeta, n_chunks: int) -> list[KVBatchMeta]:
    """Chunks of successive rows; the policy pads each to its own longest row."""
    size = meta.size // n_chunks
    return [meta.subset(range(first, first + size)) for first in range(0, meta.size, size)]


@parallelisms
def test_chunks_of_whole_micro_batches_are_the_batch_bit_for_bit(
    runs: Any, start: Start, parallelism: str
) -> None:
    """A chunk gives each rank two rows, which are a micro-batch; the width is the same for all."""
    of_ranks = [[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]]
    policy, meta = start(f"policy.parallelism={parallelism}")
    at_once = replace(meta, extra_info={GLOBAL_FORWARD_PAD_SEQLEN: WIDTH})
    (expected,) = policy.train_from_meta(at_once.subset([*of_ranks[0], *of_ranks[1]]))
    wanted = weights(runs)
    for n_chunks in (1, 4):
        policy, meta = start(f"policy.parallelism={parallelism}")
        whole = replace(meta, extra_info={GLOBAL_FORWARD_PAD_SEQLEN: WIDTH})
        chunks = cut(whole, 4) if n_chunks == 4 else [whole.subset([*of_ranks[0], *of_ranks[1]])]
        assert in_chunks(policy, chunks) == expected
        got = weights(runs)
        assert got.keys() == wanted.keys()
        assert all(torch.equal(got[name], wanted[name]) for name in wanted)
    assert expected["grad_norm"] > 0
    assert expected["num_ranks"] == 2
    assert expected["total_flops"] > 0
    assert expected["theoretical_tflops"] == 0.0


@parallelisms
@pytest.mark.parametrize("mode", ["none", "sequence_packing"])
def test_other_chunks_differ_by_rounding_only(
    runs: Any, start: Start, parallelism: str, mode: str
) -> None:
    """To 1e-5 of a metric and 1e-6 of a weight, with 1, 2 and 4 chunks of other widths."""
    updates: list[Update] = []
    for n_chunks in (1, 2, 4):
        policy, meta = start(f"policy.parallelism={parallelism}", f"policy.packing.mode={mode}")
        metrics = in_chunks(policy, cut(meta, n_chunks))
        updates.append((metrics, weights(runs)))
    for metrics, leaves in updates[1:]:
        assert metrics == pytest.approx(updates[0][0], rel=1e-5)
        for name, leaf in leaves.items():
            torch.testing.assert_close(leaf, updates[0][1][name], rtol=0, atol=1e-6)


@parallelisms
@pytest.mark.parametrize("trained", [range(8), range(0)], ids=["one rank", "no row"])
def test_a_rank_with_nothing_to_train_waits_for_nobody(
    start: Start, parallelism: str, trained: range
) -> None:
    policy, meta = start(f"policy.parallelism={parallelism}")
    mask = torch.tensor([float(row in trained) for row in range(N)])
    policy.write_to_dataplane(meta, {SAMPLE_MASK: mask})
    got = in_chunks(policy, cut(meta, 1))
    assert all(math.isfinite(value) for value in got.values())
    assert got["samples"] == len(trained)
    assert (got["grad_norm"] > 0) == (got["loss"] != 0) == (len(trained) > 0)


def test_calls_in_a_wrong_order_are_refused(start: Start) -> None:
    policy, meta = start()
    policy.abort_train_step()
    with pytest.raises(TrainStepError):
        policy.train_microbatches_from_meta(meta)
    with pytest.raises(TrainStepError):
        policy.finish_train_step()
    policy.begin_train_step()
    with pytest.raises(TrainStepError):
        policy.begin_train_step()
    with pytest.raises(TrainStepError):
        policy.train_from_meta(meta)
    policy.train_microbatches_from_meta(meta)
    policy.finish_train_step()
    with pytest.raises(TrainStepError):
        policy.finish_train_step()


def test_a_step_of_which_one_rank_lost_a_chunk_can_only_be_aborted(runs: Any, start: Start) -> None:
    policy, meta = start()
    before = weights(runs)
    lost = replace(meta, sample_ids=[*meta.sample_ids[:-1], "e_g0"])  # a row of the second rank
    policy.begin_train_step()
    policy.train_microbatches_from_meta(meta)
    with pytest.raises(LookupError):
        policy.train_microbatches_from_meta(lost)
    with pytest.raises(TrainStepError, match=r"\[2, 2\], \[1, 1\]"):
        policy.finish_train_step()
    policy.abort_train_step()
    after = weights(runs)
    assert all(torch.equal(after[name], before[name]) for name in before)
    (expected,) = policy.train_from_meta(meta)

    policy, meta = start()
    assert policy.train_from_meta(meta) == [expected]


def test_arguments_of_a_call(start: Start) -> None:
    policy, meta = start("loss_fn.reference_policy_kl_penalty=0.0")
    timer = StageTimer()
    evaluated = policy.train_from_meta(meta, eval_mode=True, gbs=8, mbs=4, timer=timer)
    stages = {"time/policy_training/shard_meta", "time/policy_training/ranks"}
    assert timer.take().keys() == stages
    trained = policy.train_from_meta(meta, gbs=8, mbs=4)
    assert len(evaluated) == len(trained) == 2
    assert evaluated[0]["loss"] == trained[0]["loss"]
    assert evaluated[1]["loss"] != trained[1]["loss"]  # trained after the first update
    with_penalty = ClippedPGLossConfig(reference_policy_kl_penalty=0.1)
    for call in (
        lambda: policy.train_from_meta(meta, with_penalty),
        lambda: policy.begin_train_step(with_penalty),
    ):
        with pytest.raises(ValueError, match="reference_policy_kl_penalty"):
            call()


@parallelisms
def test_the_witness_shows_what_was_trained_how_often(start: Start, parallelism: str) -> None:
    policy, meta = start(
        f"policy.parallelism={parallelism}",
        "policy.witness=true",
        "loss_fn.reference_policy_kl_penalty=0.0",
    )
    policy.get_logprobs_from_meta(meta)  # on policy, so that no token is clipped
    silent = {meta.sample_ids[MASKED], meta.sample_ids[ZERO_ADVANTAGE]}
    once = {name: 1 for name in meta.sample_ids if name not in silent}
    policy.train_from_meta(meta)
    assert policy.witnessed() == once
    assert policy.unwitnessed() == silent

    policy.get_logprobs_from_meta(meta)
    again = meta.subset([14, 0])  # row 0 was on the first rank, and is on the second here
    in_chunks(policy, [meta, again])
    assert policy.witnessed() == {**once, "a_g0": 2, "d_g2": 2}
    assert policy.unwitnessed() == silent

"""Each layout computes what one rank of the torch worker computes, to a stated tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.models import load_model
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.worker_group import WorkerGroup

pytestmark = pytest.mark.timeout(600)

#: Logprobs and logits in float32: all layouts, torch and Megatron, agree to this.
LOGPROBS = 1e-5
#: Weights after two updates; losses and norms relative.
WEIGHTS = 1e-5
SUMS = 1e-4

LLAMA = ("tp2", "tp2 sp", "pp2", "dp2", "dp2 zero", "tp2 dp2")
MOE = (
    "dp2",
    "pp2",
    "ep2",
    "ep2 zero",
    "tp2 sp",
    "tp2 sp ep2",
    "tp2 sp recompute",
    "tp2 sp dp2",
    "pp2 ep2",
)
CASES = [
    *(("tiny_llama_copy", name) for name in LLAMA),
    *(("tiny_moe_copy", name) for name in MOE),
]


def close(left: Tensor, right: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


def check(got: Any, wanted: Any) -> None:
    close(got.logprobs, wanted.logprobs, LOGPROBS)
    close(got.reference, got.logprobs, LOGPROBS)
    close(got.after, wanted.after, LOGPROBS * 10)
    assert len(got.updates) == len(wanted.updates) == 2
    for one, other in zip(got.updates, wanted.updates, strict=True):
        assert one.keys() == other.keys()
        assert {k: v for k, v in one.items() if k != "num_ranks"} == pytest.approx(
            {k: v for k, v in other.items() if k != "num_ranks"}, rel=SUMS, abs=1e-5
        )
        assert one["grad_norm"] > 0
    assert got.weights.keys() == wanted.weights.keys()
    for name, leaf in got.weights.items():
        close(leaf, wanted.weights[name], WEIGHTS)
    assert (got.after - got.logprobs).abs().max() > 1e-3  # the updates changed something


@pytest.mark.parametrize("packing", ["none", "sequence_packing"])
@pytest.mark.parametrize(("model", "layout"), CASES)
def test_a_layout_computes_what_one_rank_does(
    configure: Callable[..., MasterConfig],
    updated: Callable[..., Any],
    world_of: Callable[[str], int],
    model: str,
    layout: str,
    packing: str,
) -> None:
    mode = f"policy.packing.mode={packing}"
    got = updated(world_of(layout), configure(model, layout, mode))
    check(got, updated(1, configure(model, "torch", mode)))


@pytest.mark.parametrize("model", ["tiny_llama_copy", "tiny_moe_copy"])
def test_dynamic_batches_too(
    configure: Callable[..., MasterConfig], updated: Callable[..., Any], model: str
) -> None:
    """Rows of similar lengths, as wide as planned, on two pipeline stages."""
    mode = "policy.packing.mode=dynamic_batching"
    got = updated(2, configure(model, "pp2", mode))
    check(got, updated(1, configure(model, "torch", mode)))


@pytest.fixture
def split_context(
    ranks: Callable[[int], WorkerGroup],
    world_of: Callable[[str], int],
    layout: str,
    rank_class: Any,
) -> Iterator[None]:
    """Lets the ranks of the layout split rows, which needs Transformer Engine otherwise."""
    group = ranks(world_of(layout))
    group.all(rank_class.split_context, True)
    yield
    group.all(rank_class.split_context, False)


@pytest.mark.usefixtures("split_context")
@pytest.mark.parametrize(
    ("model", "layout"),
    [("tiny_llama_copy", "cp2"), ("tiny_llama_copy", "tp2 cp2"), ("tiny_moe_copy", "cp2 ep2")],
)
def test_parts_of_rows_compute_what_whole_rows_do(
    configure: Callable[..., MasterConfig],
    updated: Callable[..., Any],
    world_of: Callable[[str], int],
    model: str,
    layout: str,
) -> None:
    got = updated(world_of(layout), configure(model, layout))
    check(got, updated(1, configure(model, "torch")))


def test_parts_of_rows_need_transformer_engine(
    configure: Callable[..., MasterConfig], ranks: Callable[[int], WorkerGroup]
) -> None:
    with pytest.raises(ConfigError, match="context_parallel_size 2 needs Transformer Engine"):
        ranks(2).all(PolicyWorker.build, configure("tiny_llama_copy", "cp2"))


@pytest.mark.parametrize(
    "model", ["tiny_llama_copy", pytest.param("tiny_moe_copy", marks=pytest.mark.smoke)]
)
def test_one_rank_of_megatron_computes_what_transformers_does(
    configure: Callable[..., MasterConfig],
    updated: Callable[..., Any],
    ranks: Callable[[int], WorkerGroup],
    weights: Callable[[WorkerGroup], dict[str, Tensor]],
    model: str,
) -> None:
    """Its weights come from the checkpoint's layout and go back to it bit by bit."""
    config = configure(model, "dp2", "policy.packing.mode=none")
    check(updated(1, config), updated(1, configure(model, "torch", "policy.packing.mode=none")))
    ranks(1).all(PolicyWorker.build, config)
    expected = load_model(config.policy.model_name, seed=config.grpo.seed).state_dict()
    check_equal(weights(ranks(1)), expected)


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ("tiny_llama_copy", "tp2"),
        ("tiny_llama_copy", "pp2"),
        ("tiny_moe_copy", "tp2 sp ep2"),
        ("tiny_moe_copy", "pp2 ep2"),
    ],
)
def test_a_folder_is_loaded_shard_by_shard_and_comes_back_bit_by_bit(
    configure: Callable[..., MasterConfig],
    ranks: Callable[[int], WorkerGroup],
    weights: Callable[[WorkerGroup], dict[str, Tensor]],
    world_of: Callable[[str], int],
    rank_class: Any,
    tmp_path: Path,
    model: str,
    layout: str,
) -> None:
    config = configure(model, layout, f"policy.model_name={tmp_path}")
    source = load_model(configure(model, layout).policy.model_name, seed=7)
    source.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    group = ranks(world_of(layout))
    group.all(PolicyWorker.build, config)
    expected = source.state_dict()
    check_equal(weights(group), expected)
    whole = sum(tensor.numel() for tensor in expected.values())
    assert max(group.all(rank_class.part_size)) < 0.75 * whole


def check_equal(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    assert [name for name in got if not torch.equal(got[name], expected[name])] == []

"""The parts of all ranks together are the whole checkpoint, each element once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from rlconform.grpo.models import tiny_model
from rlconform.grpo.models.checkpoint_weight_names import as_checkpoint, from_checkpoint
from rlconform.grpo.workers.megatron.weight_map import ModelSizes, WeightMap

_DENSE = ("mlp.linear_fc1.weight", "mlp.linear_fc2.weight")


def names(sizes: ModelSizes, layers: int, ep: int, *, first: bool, last: bool) -> Iterator[str]:
    """The weights of Megatron's ``GPTModel`` on one pipeline stage."""
    if first:
        yield "embedding.word_embeddings.weight"
    for layer in range(layers):
        prefix = f"decoder.layers.{layer}."
        for inner in (
            "input_layernorm.weight",
            "self_attention.linear_qkv.weight",
            "self_attention.linear_proj.weight",
            "pre_mlp_layernorm.weight",
        ):
            yield prefix + inner
        if not sizes.experts:
            yield from (prefix + inner for inner in _DENSE)
            continue
        yield prefix + "self_attention.q_layernorm.weight"
        yield prefix + "self_attention.k_layernorm.weight"
        yield prefix + "mlp.router.weight"
        for expert in range(sizes.experts // ep):
            for kind in ("linear_fc1", "linear_fc2"):
                yield f"{prefix}mlp.experts.local_experts.{expert}.{kind}.weight"
    if last:
        yield "decoder.final_layernorm.weight"
        yield "output_layer.weight"


def counts_of(checkpoint: dict[str, Tensor], sizes: ModelSizes, tp: int, pp: int, ep: int) -> dict:
    """How often each element of the checkpoint is in a part of one of the ranks."""
    counts = {name: torch.zeros(tensor.shape) for name, tensor in checkpoint.items()}
    for stage in range(pp):
        layers = list(range(stage * 2 // pp, (stage + 1) * 2 // pp))
        for tp_rank in range(tp):
            for ep_rank in range(ep):
                own = WeightMap(sizes, layers, tp, tp_rank, ep, ep_rank)
                for name in names(sizes, len(layers), ep, first=stage == 0, last=stage == pp - 1):
                    for part in own.parts(name):
                        columns = slice(*part.columns) if part.columns else ...
                        counts[part.name][slice(*part.rows)][
                            (slice(None), columns) if part.columns else ...
                        ] += 1
    return counts


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize(("model", "ep"), [("tiny-llama", 1), ("tiny-qwen3-moe", 4)])
def test_every_element_of_the_checkpoint_has_a_rank(model: str, ep: int, tp: int, pp: int) -> None:
    tiny = tiny_model(model, 0)
    checkpoint = dict(as_checkpoint(tiny.state_dict()))
    counts = counts_of(checkpoint, ModelSizes.of(tiny.config), tp, pp, ep)
    for name, count in counts.items():
        whole = "norm" in name or name.endswith("mlp.gate.weight")
        holders = tp if ".experts." in name else ep * (tp if whole else 1)
        assert torch.equal(count, torch.full_like(count, holders)), name


def test_vocabularies_that_ranks_do_not_divide_are_filled_up() -> None:
    sizes = ModelSizes(8, 4, 2, 2, 16, vocabulary=10, tied=False)
    rows = [
        WeightMap(sizes, [0], tp=4, tp_rank=rank).parts("output_layer.weight")[0].rows
        for rank in range(4)
    ]
    assert rows == [(0, 3), (3, 6), (6, 9), (9, 10)]


def test_tied_output_layers_are_the_embedding() -> None:
    sizes = ModelSizes(8, 4, 2, 2, 16, vocabulary=10, tied=True)
    (part,) = WeightMap(sizes, [0]).parts("output_layer.weight")
    assert part.name == "model.embed_tokens.weight"


def test_norms_within_layers_of_transformer_engine() -> None:
    sizes = ModelSizes(8, 4, 2, 2, 16, vocabulary=10, tied=False)
    fused = [
        WeightMap(sizes, [5]).parts(f"decoder.layers.0.{name}.layer_norm_weight")[0].name
        for name in ("self_attention.linear_qkv", "mlp.linear_fc1")
    ]
    assert fused == [
        "model.layers.5.input_layernorm.weight",
        "model.layers.5.post_attention_layernorm.weight",
    ]


@pytest.mark.parametrize("name", ["decoder.layers.0.mlp.linear_fc3.weight", "lm_head.weight"])
def test_other_names_are_refused(name: str) -> None:
    sizes = ModelSizes(8, 4, 2, 2, 16, vocabulary=10, tied=False)
    with pytest.raises(ValueError, match="no weight of a Hugging Face model"):
        WeightMap(sizes, [0]).parts(name)


def test_checkpoint_names_become_names_in_memory_again() -> None:
    weights = tiny_model("tiny-qwen3-moe", 0).state_dict()
    again = from_checkpoint(dict(reversed(list(as_checkpoint(weights)))))
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], weights[name]) for name in weights)

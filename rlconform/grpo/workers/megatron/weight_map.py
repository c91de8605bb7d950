"""``WeightMap``: where each of a rank's weights lies in the tensors of a Hugging Face checkpoint.

    rank's weight = parts of the checkpoint's tensors, one below the other

    linear_qkv   for each group of key-value heads: rows of q_proj, k_proj, v_proj
    linear_fc1   rows of gate_proj, rows of up_proj
    linear_proj  columns of o_proj;   linear_fc2   columns of down_proj
    experts      all rows of the rank's own experts
    word_embeddings, output_layer   rows; those beyond the vocabulary are zero and in no checkpoint

The same map loads weights and writes them. It needs only sizes, so it is tested without Megatron.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from transformers import PreTrainedConfig

from rlconform.plane.microbatches import round_up

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.+)\.weight")
_EXPERT = re.compile(r"mlp\.experts\.local_experts\.(\d+)\.(linear_fc[12])")
_FUSED_NORM = re.compile(r"(.+)\.layer_norm_weight")

#: Weights that every tensor-parallel rank has whole, by their names in a layer.
_WHOLE = {
    "input_layernorm": "input_layernorm",
    "pre_mlp_layernorm": "post_attention_layernorm",
    "self_attention.q_layernorm": "self_attn.q_norm",
    "self_attention.k_layernorm": "self_attn.k_norm",
    "mlp.router": "mlp.gate",
}
#: Norms that Transformer Engine keeps within the layer after them.
_FUSED = {
    "self_attention.linear_qkv": "input_layernorm",
    "mlp.linear_fc1": "post_attention_layernorm",
}


class Span(NamedTuple):
    """Rows or columns ``start:stop`` of a tensor."""

    start: int
    stop: int


class WeightPart(NamedTuple):
    """A block of a checkpoint's tensor; ``columns`` is None for a vector."""

    name: str
    rows: Span
    columns: Span | None = None


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a model that its weights' shapes depend on."""

    hidden: int
    heads: int
    groups: int  # of heads, each with one key-value head
    head_dim: int
    ffn: int
    vocabulary: int
    tied: bool
    experts: int = 0
    expert_ffn: int = 0

    @classmethod
    def of(cls, hf: PreTrainedConfig) -> ModelSizes:
        """Read the sizes of a Llama, Qwen3 or Qwen3-MoE model."""
        given: Any = hf
        heads = given.num_attention_heads
        return cls(
            given.hidden_size,
            heads,
            given.num_key_value_heads,
            getattr(given, "head_dim", None) or given.hidden_size // heads,
            given.intermediate_size,
            given.vocab_size,
            given.tie_word_embeddings,
            getattr(given, "num_experts", 0),
            getattr(given, "moe_intermediate_size", 0),
        )


@dataclass(frozen=True)
class WeightMap:
    """One rank's map; ``layers`` are the numbers, from 0, of its pipeline stage's layers."""

    sizes: ModelSizes
    layers: Sequence[int]
    tp: int = 1
    tp_rank: int = 0
    ep: int = 1
    ep_rank: int = 0

    def parts(self, name: str) -> list[WeightPart]:
        """Return the parts of a weight of Megatron's ``GPTModel``; ``ValueError`` for no weight."""
        if name == "embedding.word_embeddings.weight":
            return self._vocabulary(_EMBEDDING)
        if name == "output_layer.weight":
            return self._vocabulary(_EMBEDDING if self.sizes.tied else _HEAD)
        if name == "decoder.final_layernorm.weight":
            return [self._vector("model.norm.weight", self.sizes.hidden)]
        fused = _FUSED_NORM.fullmatch(name)
        found = _LAYER.fullmatch(f"{fused[1]}.weight" if fused else name)
        if found is None:
            raise ValueError(f"no weight of a Hugging Face model corresponds to {name!r}")
        prefix, inner = f"model.layers.{self.layers[int(found[1])]}", found[2]
        if fused:
            return [self._vector(f"{prefix}.{_FUSED[inner]}.weight", self.sizes.hidden)]
        if inner in _WHOLE:
            return [self._whole(f"{prefix}.{_WHOLE[inner]}.weight", inner)]
        return self._matrix(prefix, inner)

    def _vector(self, name: str, size: int) -> WeightPart:
        return WeightPart(name, Span(0, size))

    def _whole(self, name: str, inner: str) -> WeightPart:
        if inner == "mlp.router":
            return WeightPart(name, Span(0, self.sizes.experts), Span(0, self.sizes.hidden))
        in_head = inner.startswith("self_attention")
        return self._vector(name, self.sizes.head_dim if in_head else self.sizes.hidden)

    def _vocabulary(self, name: str) -> list[WeightPart]:
        rows = _share(round_up(self.sizes.vocabulary, self.tp), self.tp, self.tp_rank)
        last = min(rows.stop, self.sizes.vocabulary)
        return [WeightPart(name, Span(rows.start, last), Span(0, self.sizes.hidden))]

    def _matrix(self, prefix: str, inner: str) -> list[WeightPart]:
        expert = _EXPERT.fullmatch(inner)
        if expert is None:
            kind, mlp, ffn = inner, f"{prefix}.mlp", self.sizes.ffn
            rows = _share(ffn, self.tp, self.tp_rank)
        else:
            number = self.ep_rank * (self.sizes.experts // self.ep) + int(expert[1])
            kind, mlp = f"mlp.{expert[2]}", f"{prefix}.mlp.experts.{number}"
            rows = Span(0, self.sizes.expert_ffn)
        hidden = Span(0, self.sizes.hidden)
        attention = f"{prefix}.self_attn"
        builders: dict[str, Callable[[], list[WeightPart]]] = {
            "self_attention.linear_qkv": lambda: self._qkv(attention),
            "self_attention.linear_proj": lambda: [
                WeightPart(
                    f"{attention}.o_proj.weight",
                    hidden,
                    _share(self.sizes.heads * self.sizes.head_dim, self.tp, self.tp_rank),
                )
            ],
            "mlp.linear_fc1": lambda: [
                WeightPart(f"{mlp}.{half}_proj.weight", rows, hidden) for half in ("gate", "up")
            ],
            "mlp.linear_fc2": lambda: [WeightPart(f"{mlp}.down_proj.weight", hidden, rows)],
        }
        if kind not in builders:
            raise ValueError(f"no weight of a Hugging Face model corresponds to {inner!r}")
        return builders[kind]()

    def _qkv(self, prefix: str) -> list[WeightPart]:
        sizes, hidden = self.sizes, Span(0, self.sizes.hidden)
        queries = sizes.heads // sizes.groups * sizes.head_dim
        return [
            WeightPart(
                f"{prefix}.{kind}_proj.weight", Span(group * size, (group + 1) * size), hidden
            )
            for group in range(*_share(sizes.groups, self.tp, self.tp_rank))
            for kind, size in (("q", queries), ("k", sizes.head_dim), ("v", sizes.head_dim))
        ]


def _share(size: int, parts: int, index: int) -> Span:
    """Return the ``index``-th of equal parts."""
    each = size // parts
    return Span(index * each, (index + 1) * each)

"""``build_model``: this rank's part of a Hugging Face model as Megatron's ``GPTModel``, no weights.

With Transformer Engine the layers are Megatron's own for it, otherwise those in plain torch, which
compute the same. ``ConfigError`` names what a model needs and Megatron would not compute alike.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.parallel_state import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    is_pipeline_first_stage,
    is_pipeline_last_stage,
)
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_block import (
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)
from torch import Tensor, nn
from transformers import PreTrainedConfig

from rlconform.contract import ConfigError
from rlconform.grpo.config.megatron import MegatronConfig
from rlconform.plane.microbatches import round_up

HAS_TRANSFORMER_ENGINE = find_spec("transformer_engine") is not None

#: Architectures whose layers Megatron has: values of ``model_type``.
_ARCHITECTURES = ("llama", "qwen3", "qwen3_moe")


class RankNorm(nn.RMSNorm):
    """RMSNorm for plain torch layers.

    Under sequence parallelism each rank norms some of the tokens, so the gradients of the weight
    are summed over the tensor-parallel ranks; Megatron finds it by the attribute.
    """

    def __init__(
        self, config: TransformerConfig, hidden_size: int, eps: float, **_options: Any
    ) -> None:
        super().__init__(hidden_size, eps=eps)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        """Norm ``x`` (..., hidden_size) step by step, as transformers does.

        In bfloat16 ``nn.RMSNorm`` rounds once, after the product with the weight; this rounds
        before it too.
        """
        wide = x.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + (self.eps or 0.0))
        return self.weight * normed.to(x.dtype)


def check_engine(megatron: MegatronConfig, *, has_engine: bool) -> None:
    """Raise ``ConfigError`` for options that this process can't run.

    ``has_engine`` says whether Transformer Engine is installed.
    """
    if megatron.context_parallel_size > 1 and not has_engine:
        raise ConfigError(
            f"policy.megatron_cfg.context_parallel_size {megatron.context_parallel_size} needs "
            f"Transformer Engine, whose attention joins the parts of a row; install it, or set the "
            f"key to 1"
        )
    if (megatron.virtual_pipeline_model_parallel_size or 1) > 1:
        raise ConfigError(
            f"policy.megatron_cfg.virtual_pipeline_model_parallel_size must be 1, one part of the "
            f"model per rank; got {megatron.virtual_pipeline_model_parallel_size}"
        )


def transformer_config(
    hf: PreTrainedConfig,
    megatron: MegatronConfig,
    dtype: torch.dtype,
    device: torch.device,
    *,
    replay: bool = False,
) -> Any:
    """Translate the model's sizes and the parallelism; ``ConfigError`` for what differs.

    With ``replay`` the routers of the model can be made to replay their choices.
    """
    given: Any = hf
    if hf.model_type not in _ARCHITECTURES:
        raise ConfigError(
            f"policy.megatron_cfg: expected a model of type {', '.join(_ARCHITECTURES)}; got "
            f"{hf.model_type!r}"
        )
    experts = given.num_experts if hf.model_type == "qwen3_moe" else None
    _check_layers(given, megatron, experts)
    moe: dict[str, Any] = {}
    if experts:
        moe = {
            "num_moe_experts": experts,
            "moe_router_topk": given.num_experts_per_tok,
            "moe_ffn_hidden_size": given.moe_intermediate_size,
            # softmax before the choice of experts, unless the chosen ones' shares add up to 1
            "moe_router_pre_softmax": not given.norm_topk_prob,
            "moe_router_load_balancing_type": "none",
            "moe_aux_loss_coeff": 0.0,
            "moe_router_dtype": "fp32",
            "moe_enable_routing_replay": replay,
        }
    recompute: dict[str, Any] = {}
    if megatron.activation_checkpointing:
        recompute = {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        }
    heads = given.num_attention_heads
    return TransformerConfig(
        num_layers=given.num_hidden_layers,
        hidden_size=given.hidden_size,
        ffn_hidden_size=given.intermediate_size,
        num_attention_heads=heads,
        num_query_groups=given.num_key_value_heads,
        kv_channels=getattr(given, "head_dim", None) or given.hidden_size // heads,
        normalization="RMSNorm",
        layernorm_epsilon=given.rms_norm_eps,
        qk_layernorm=hf.model_type != "llama",
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=nn.functional.silu,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        attention_softmax_in_fp32=True,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=HAS_TRANSFORMER_ENGINE,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        fp16=dtype == torch.float16,
        tensor_model_parallel_size=megatron.tensor_model_parallel_size,
        pipeline_model_parallel_size=megatron.pipeline_model_parallel_size,
        expert_model_parallel_size=megatron.expert_model_parallel_size,
        expert_tensor_parallel_size=1,
        context_parallel_size=megatron.context_parallel_size,
        sequence_parallel=megatron.sequence_parallel,
        variable_seq_lengths=megatron.pipeline_model_parallel_size > 1,
        moe_token_dispatcher_type="alltoall",  # tokens of an expert vary by rank and micro-batch
        # the loss of a micro-batch is a sum, which finish_train_step divides once
        calculate_per_token_loss=True,
        use_cpu_initialization=device.type == "cpu",
        # The weights are loaded, but without this Megatron doesn't mark those that are split over
        # tensor-parallel ranks, and leaves all but the first rank's out of the gradient norm.
        perform_initialization=True,
        **moe,
        **recompute,
    )


def _check_layers(given: Any, megatron: MegatronConfig, experts: int | None) -> None:
    tp, pp = megatron.tensor_model_parallel_size, megatron.pipeline_model_parallel_size
    rope = given.rope_parameters["rope_type"]
    sizes = {
        "attention_bias false": not getattr(given, "attention_bias", False),
        "hidden_act silu": given.hidden_act == "silu",
        "rope_type default": rope == "default",
        f"a multiple of {pp} layers": given.num_hidden_layers % pp == 0,
        f"a multiple of {tp} key-value heads": given.num_key_value_heads % tp == 0,
    }
    if experts:
        sizes |= {
            "experts in every layer": given.decoder_sparse_step == 1 and not given.mlp_only_layers,
            f"a multiple of {megatron.expert_model_parallel_size} experts": (
                experts % megatron.expert_model_parallel_size == 0
            ),
            "sequence_parallel: true with tensor_model_parallel_size above 1": (
                tp == 1 or megatron.sequence_parallel
            ),
        }
    elif megatron.expert_model_parallel_size > 1:
        raise ConfigError(
            "policy.megatron_cfg.expert_model_parallel_size must be 1: the model has no experts"
        )
    if missing := [name for name, holds in sizes.items() if not holds]:
        raise ConfigError(f"policy.megatron_cfg: expected {' and '.join(missing)} in this model")


def build_model(hf: PreTrainedConfig, config: Any) -> Any:
    """Create this rank's layers on the device that Megatron uses, without defined weights."""
    given: Any = hf
    model = GPTModel(
        config=config,
        transformer_layer_spec=_layers(config),
        vocab_size=round_up(given.vocab_size, config.tensor_model_parallel_size),
        max_sequence_length=given.max_position_embeddings,
        pre_process=is_pipeline_first_stage(),
        post_process=is_pipeline_last_stage(),
        parallel_output=True,
        share_embeddings_and_output_weights=given.tie_word_embeddings,
        position_embedding_type="rope",
        rotary_base=given.rope_parameters["rope_theta"],
    )
    for name, weight in model.named_parameters():
        if ".experts." in name:
            # Megatron does this only with expert_model_parallel_size above 1. But the ranks of a
            # tensor-parallel group, who run whole experts, see different tokens as well, so the
            # gradients are to be summed over them too.
            weight.allreduce = False
    if model.pre_process and given.pad_token_id is not None:
        words = model.embedding.word_embeddings
        words.register_forward_hook(partial(_without_gradient, given.pad_token_id))
    return model.to(config.params_dtype)


def _without_gradient(
    pad_token_id: int, words: Any, inputs: tuple[Tensor, ...], output: Tensor
) -> Tensor:
    """Give the pad token's embedding no gradient, as transformers does; a forward hook.

    An engine may sample the token, so rows can contain it. Its embedding is zero, and the norm of
    zeros multiplies gradients by 1 / sqrt(eps), some 1000: they would outweigh all others.
    """
    pads = inputs[0] == pad_token_id  # (B, S), as the output
    if words.reduce_scatter_embeddings:  # the output is this rank's part, (S, B)
        parts = pads.T.chunk(get_tensor_model_parallel_world_size())
        pads = parts[get_tensor_model_parallel_rank()].contiguous()  # or the result were not
    return torch.where(pads[..., None], output.detach(), output)


def _layers(config: Any) -> Any:
    experts, qk_norm = config.num_moe_experts, config.qk_layernorm
    if HAS_TRANSFORMER_ENGINE:
        return get_gpt_layer_with_transformer_engine_spec(
            num_experts=experts, moe_grouped_gemm=False, qk_layernorm=qk_norm
        )
    if not hasattr(moe_utils, "te_general_gemm"):
        # megatron-core 0.16.1 reads the name even where its import has failed
        moe_utils.te_general_gemm = None
    layer = get_gpt_layer_local_spec(
        num_experts=experts, qk_layernorm=qk_norm, normalization="RMSNorm"
    )
    # Megatron's wrapper of torch's norm refuses sequence parallelism.
    layer.submodules.input_layernorm = RankNorm
    layer.submodules.pre_mlp_layernorm = RankNorm
    attention = layer.submodules.self_attention.submodules
    if qk_norm:
        attention.q_layernorm = attention.k_layernorm = RankNorm
    return TransformerBlockSubmodules(
        layer_specs=[layer] * get_num_layers_to_build(config), layer_norm=RankNorm
    )

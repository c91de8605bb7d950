"""Megatron's DDP and optimizer, with the options of ``policy.optimizer``.

The torch worker decays all weights; Megatron by default leaves out norms, which is turned off, so
that both compute the same update.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.optimizer import OptimizerConfig as MegatronOptions
from megatron.core.optimizer import get_megatron_optimizer

from rlconform.grpo.config import PolicyConfig


def wrap_for_training(model: Any, policy: PolicyConfig) -> Any:
    """Give the model buffers in which gradients are added up, in float32."""
    options = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=False,  # which pass is an update's last isn't known while it runs
        use_distributed_optimizer=policy.megatron_cfg.optimizer.use_distributed_optimizer,
    )
    return DistributedDataParallel(config=model.config, ddp_config=options, module=model)


def build_megatron_optimizer(model: Any, policy: PolicyConfig) -> Any:
    """Create AdamW for a model of ``wrap_for_training``."""
    options, beta1_beta2 = policy.optimizer, policy.optimizer.betas
    limit = float("inf") if policy.max_grad_norm is None else policy.max_grad_norm
    dtype = model.config.params_dtype
    return get_megatron_optimizer(
        MegatronOptions(
            optimizer="adam",
            lr=options.lr,
            min_lr=0.0,
            weight_decay=options.weight_decay,
            adam_beta1=beta1_beta2[0],
            adam_beta2=beta1_beta2[1],
            adam_eps=options.eps,
            clip_grad=limit,
            bf16=dtype == torch.bfloat16,
            params_dtype=dtype,
            use_distributed_optimizer=policy.megatron_cfg.optimizer.use_distributed_optimizer,
        ),
        [model],
        config_overrides={},  # weight decay for norms too
    )


def update_weights(model: Any, optimizer: Any, count: float, rate: float) -> float:
    """Divide the sums of gradients over ranks by ``count``, clip them, and update the weights.

    Returns the norm before clipping; collective.
    """
    finalize_model_grads([model])
    model.scale_gradients(1.0 / count)
    for group in optimizer.param_groups:
        group["lr"] = rate
    _, norm, _ = optimizer.step()
    return float(norm)


def zero_gradients(model: Any, optimizer: Any) -> None:
    """Set all gradients to zero."""
    model.zero_grad_buffer()
    optimizer.zero_grad()

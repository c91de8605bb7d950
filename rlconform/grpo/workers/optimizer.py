"""The optimizer and its learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from rlconform.grpo.config import OptimizerConfig, SchedulerConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> AdamW:
    """Create AdamW for the trainable weights (Loshchilov and Hutter 2019, arXiv 1711.05101)."""
    return AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=config.lr,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
    )


def build_schedule(optimizer: AdamW, config: SchedulerConfig, n_updates: int) -> LambdaLR:
    """Create a schedule with the optimizer's rate as peak; call its ``step`` after each update."""
    return LambdaLR(optimizer, learning_rate_factor(config, n_updates))


def learning_rate_factor(config: SchedulerConfig, n_updates: int) -> Callable[[int], float]:
    """Return a function that maps the number u of an update, from 0, to a factor of the peak rate.

    During a warm-up of w updates the factor is (u + 1) / w. After that it is 1 (constant) or, with
    p the share of the updates after the warm-up that are done, and m the lowest factor::

        linear    1 - (1 - m) p
        cosine    m + (1 - m) (1 + cos(pi p)) / 2       (Loshchilov and Hutter 2017, SGDR)
    """

    def factor(update: int) -> float:
        if update < config.warmup_steps:
            return (update + 1) / config.warmup_steps
        if config.name == "constant":
            return 1.0
        remaining = max(n_updates - 1 - config.warmup_steps, 1)
        share = min((update - config.warmup_steps) / remaining, 1.0)
        if config.name == "linear":
            return 1.0 - (1.0 - config.min_lr_ratio) * share
        return config.min_lr_ratio + (1.0 - config.min_lr_ratio) * (
            0.5 * (1.0 + math.cos(math.pi * share))
        )

    return factor

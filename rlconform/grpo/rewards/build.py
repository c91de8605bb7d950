"""``build_scorer``: the scorer that a configuration asks for.

custom_reward_function:                     ──▶ FunctionScorer
reward_model: {enable: true, service: ...}  ──▶ ServiceScorer
reward_model: {enable: true}                ──▶ the scorer of the run's reward workers
none of them                                ──▶ TaskRule
"""

from __future__ import annotations

from typing import Protocol

from rlconform.contract import ConfigError
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.rewards.base import RewardScorer
from rlconform.grpo.rewards.functions import FunctionScorer, load_reward_function
from rlconform.grpo.rewards.service import ServiceScorer
from rlconform.grpo.rewards.task_rule import TaskRule


class RewardModelHandle(Protocol):
    """What the driver gives each rollout worker of the run's reward workers; it is pickled."""

    def open_scorer(self, config: MasterConfig) -> RewardScorer:
        """Return a scorer that asks the reward workers; it is closed with the rollout worker."""
        ...


def build_scorer(
    config: MasterConfig, reward_model: RewardModelHandle | None = None
) -> RewardScorer:
    """Create the scorer of a rollout worker; ``ConfigError`` if what it needs is not there."""
    if config.custom_reward_function is not None:
        function = config.custom_reward_function
        return FunctionScorer(
            load_reward_function(function),
            function.reward_kwargs,
            threads=config.reward_loop.max_concurrent,
        )
    if not config.reward_model.enable:
        return TaskRule()
    if config.reward_model.service is not None:
        return ServiceScorer(config.reward_model.service, timeout_s=config.reward_loop.timeout_s)
    if reward_model is None:
        raise ConfigError(
            "reward_model.enable needs reward workers, and this run has none: set "
            "reward_model.service, or custom_reward_function in its place"
        )
    return reward_model.open_scorer(config)


def check_rewards(config: MasterConfig) -> None:
    """Load what can be loaded without the run's actors, so that its errors come before them."""
    if config.custom_reward_function is not None:
        load_reward_function(config.custom_reward_function)

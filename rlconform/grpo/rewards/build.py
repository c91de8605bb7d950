"""``build_scorer``: the scorer that a configuration asks for.

custom_reward_function:                     ──▶ FunctionScorer
reward_model: {enable: true, service: ...}  ──▶ ServiceScorer
reward_model: {enable: true}                ──▶ the scorer of the run's reward workers
none of them                                ──▶ TaskRule
"""

from __future__ import annotations

from rlconform.contract import ConfigError
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.rewards.base import RewardScorer
from rlconform.grpo.rewards.functions import FunctionScorer, load_reward_function
from rlconform.grpo.rewards.model_scorer import ModelScorer
from rlconform.grpo.rewards.reward_workers import RewardWorkers
from rlconform.grpo.rewards.service import ServiceScorer
from rlconform.grpo.rewards.task_rule import TaskRule


def build_scorer(config: MasterConfig, workers: RewardWorkers | None = None) -> RewardScorer:
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
    if workers is None:
        raise ConfigError(
            "reward_model.enable needs reward workers, and this run has none: set "
            "reward_model.service, or custom_reward_function in its place"
        )
    return ModelScorer(workers, config.reward_model)


def check_rewards(config: MasterConfig) -> None:
    """Load what can be loaded without the run's actors, so that its errors come before them."""
    if config.custom_reward_function is not None:
        load_reward_function(config.custom_reward_function)

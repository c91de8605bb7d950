"""Rewards of rollouts: rule-based functions and reward models, called as soon as a row is done."""

from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer

__all__ = ["Reward", "RewardRequest", "RewardScorer"]

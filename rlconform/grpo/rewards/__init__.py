"""Rewards of rollouts: rule-based functions and reward models, called as soon as a row is done.

base                  ``RewardScorer``, the interface of all of them
batching_executor     puts single requests together to batches, for one or several runners
model_scorer          scores rows with reward workers, in batches
reward_workers        their handles, which rollout workers have
reward_group          starts and ends them
reward_worker         an actor with a whole reward model
reward_model          a model that scores rows, and can rest; ``tiny_reward_model``: a tiny one
"""

from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer

__all__ = ["Reward", "RewardRequest", "RewardScorer"]

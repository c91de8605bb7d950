"""``TaskRule``: the default scorer, which rewards a row by the rule of its task.

The environment has answered each turn already, and its answers hold the rule's rewards, so that
nothing is computed a second time.
"""

from __future__ import annotations

from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer


class TaskRule(RewardScorer):
    """Adds up the rewards and their components over the turns."""

    async def score(self, request: RewardRequest) -> Reward:
        """Return the sum; each turn has the environment's reward as its own value."""
        value, components = 0.0, dict[str, float]()
        for step in request.environment:
            value += step.reward
            for name, part in step.components.items():
                components[name] = components.get(name, 0.0) + part
        values = tuple(step.reward for step in request.environment)
        return Reward(request.sample_id, request.attempt, value, components, values)

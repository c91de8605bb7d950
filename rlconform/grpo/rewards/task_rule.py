"""``TaskRule``: the default scorer, which rewards a row by the rule of its task.

The environment has answered each turn already, and its answers hold the rule's rewards, so that
nothing is computed a second time.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.tasks import EnvStep


class TaskRule(RewardScorer):
    """Adds up the rewards and their components over the turns."""

    async def score(self, request: RewardRequest) -> Reward:
        """Return the sum; each turn has the environment's reward as its own value."""
        values = tuple(step.reward for step in request.environment)
        components = components_of(request.environment)
        return Reward(request.sample_id, request.attempt, sum(values, 0.0), components, values)


def components_of(environment: Sequence[EnvStep]) -> dict[str, float]:
    """Add up the components of the rewards over the turns, by name."""
    components: dict[str, float] = {}
    for step in environment:
        for name, part in step.components.items():
            components[name] = components.get(name, 0.0) + part
    return components

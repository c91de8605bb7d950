"""``conversation``: a row as a chat, the form in which reward models read it."""

from __future__ import annotations

from itertools import zip_longest

from rlconform.grpo.rewards.base import RewardRequest


def conversation(request: RewardRequest) -> list[dict[str, str]]:
    """Return the prompt, and the policy's turns with the environment's answers between them.

    The last message is the policy's. What the environment said is the user's.
    """
    messages = [dict(message) for message in request.problem.messages]
    between = request.environment[: len(request.turns) - 1]
    for turn, step in zip_longest(request.turns, between):
        messages.append({"role": "assistant", "content": turn.text})
        if step is not None and step.observation is not None:
            messages.append({"role": "user", "content": step.observation})
    return messages

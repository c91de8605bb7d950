"""``GuessDigit``: a task with several turns; each wrong guess gets the hint "higher" or "lower".

<user>?   ──▶ "5"   ──▶ <environment>+   ──▶ "8"   ──▶ <environment>-   ──▶ "7"   reward 1
"""

from __future__ import annotations

from collections.abc import Sequence

from rlconform.grpo.tasks.base import EnvStep, PolicyTurn, Problem, RolloutTask
from rlconform.grpo.tasks.digits import problem_draws

HIGHER, LOWER, NO_DIGIT = "+", "-", "?"


class GuessDigit(RolloutTask):
    """Find a hidden digit; a row ends when it is found, or after the maximum number of turns.

    Args:
        seed: Seed of the hidden digits.
        prefix: Prefix of every uid.
        digits: The digits are 0 to ``digits - 1``.
    """

    def __init__(self, seed: int, prefix: str, *, digits: int = 10) -> None:
        self._seed = seed
        self._prefix = prefix
        self._digits = digits

    @property
    def size(self) -> None:
        """No limit."""
        return None

    def problem(self, index: int) -> Problem:
        """See ``RolloutTask``."""
        hidden = int(problem_draws(self._seed, self._prefix, index).random() * self._digits)
        question = {"role": "user", "content": "?"}
        return Problem(f"{self._prefix}-{index}", (question,), str(hidden))

    def respond(self, problem: Problem, turns: Sequence[PolicyTurn]) -> EnvStep:
        """Reward 1 for the hidden digit, otherwise 0 and a hint.

        A turn that was cut off ends the row.
        """
        turn = turns[-1]
        if not turn.ended:
            return EnvStep(0.0)
        if turn.text == problem.answer:
            return EnvStep(1.0)
        if len(turn.text) != 1 or not "0" <= turn.text <= "9":
            return EnvStep(0.0, NO_DIGIT)
        return EnvStep(0.0, HIGHER if turn.text < problem.answer else LOWER)

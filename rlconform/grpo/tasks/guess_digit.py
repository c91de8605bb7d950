"""``GuessDigit``: a task with several turns; each wrong guess gets the hint "higher" or "lower".

<user>?   ──▶ "5"   ──▶ <environment>+   ──▶ "8"   ──▶ <environment>-   ──▶ "7"   reward 1
"""

from __future__ import annotations

from collections.abc import Sequence

from rlconform.grpo.tasks.base import EnvStep, PolicyTurn, Problem, QuestionTask

HIGHER, LOWER, NO_DIGIT = "+", "-", "?"


class GuessDigit(QuestionTask):
    """The policy guesses a hidden digit until it finds the digit or its turns are used up."""

    def respond(self, problem: Problem, turns: Sequence[PolicyTurn]) -> EnvStep:
        """Reward 1 for the hidden digit, otherwise 0 and a hint; a cut-off turn ends the row."""
        turn = turns[-1]
        if not turn.ended:
            return EnvStep(0.0)
        if turn.text == problem.answer:
            return EnvStep(1.0)
        if len(turn.text) != 1 or not "0" <= turn.text <= "9":
            return EnvStep(0.0, NO_DIGIT)
        return EnvStep(0.0, HIGHER if turn.text < problem.answer else LOWER)

    def _question_and_answer(self, index: int) -> tuple[str, str]:
        return "?", str(int(self._random(index).random() * self._config.digits))

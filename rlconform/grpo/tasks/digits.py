"""Synthetic problems on digits, with exact rewards and without a download.

emit   "413"    ──▶ "7"      the target, for every question
copy   "413"    ──▶ "413"
sort   "413"    ──▶ "134"
sum    "4+1+3"  ──▶ "8"      modulo the number of digits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from rlconform.grpo.tasks.base import EnvStep, PolicyTurn, Problem, QuestionTask


class DigitTask(QuestionTask):
    """The tasks ``emit``, ``copy``, ``sort`` and ``sum``, with one turn per row."""

    def respond(self, problem: Problem, turns: Sequence[PolicyTurn]) -> EnvStep:
        """Reward the turn, which ends the row.

        The components are ``correctness``, without the end token, and ``format``: the end token.
        """
        turn = turns[-1]
        right = credit(problem.answer, replace(turn, ended=True), self._config.partial_credit)
        components = {"correctness": right, "format": float(turn.ended)}
        return EnvStep(
            credit(problem.answer, turn, self._config.partial_credit), components=components
        )

    def _question_and_answer(self, index: int) -> tuple[str, str]:
        config, draw = self._config, self._random(index).random
        length = config.min_length + int(draw() * (config.max_length - config.min_length + 1))
        drawn = [int(draw() * config.digits) for _ in range(length)]
        text = "".join(map(str, drawn))
        match config.task:
            case "emit":
                return text, config.target
            case "sort":
                return text, "".join(sorted(text))
            case "sum":
                return "+".join(text), str(sum(drawn) % config.digits)
            case _:
                return text, text


def credit(answer: str, turn: PolicyTurn, partial: bool) -> float:
    """Compute the reward of a response.

    It is 1 for the exact answer followed by the end token. Otherwise it is 0 or, with ``partial``,
    m / (A + 1) where m of the answer's A characters are right before the first wrong one.
    """
    if turn.ended and turn.text == answer:
        return 1.0
    if not partial:
        return 0.0
    pairs = zip(answer, turn.text, strict=False)
    right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return right / (len(answer) + 1)

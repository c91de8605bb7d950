"""Made problems over digits: right or wrong can be told exactly, and none needs a download.

emit   "413"    ──▶ "7"      the target, whatever is asked
copy   "413"    ──▶ "413"
sort   "413"    ──▶ "134"
sum    "4+1+3"  ──▶ "8"      modulo the number of digits
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from rlconform.grpo.tasks.base import EnvStep, PolicyTurn, Problem, RolloutTask


class DigitTaskShape(NamedTuple):
    """How problems of digits look.

    Attributes:
        min_length: Fewest digits of a problem.
        max_length: Most of them.
        digits: They are from 0 up to, not including, this one.
        partial_credit: See ``credit``.
    """

    min_length: int = 1
    max_length: int = 1
    digits: int = 10
    partial_credit: bool = False


class DigitTask(RolloutTask):
    """Problems of a few digits, drawn from the seed; one turn.

    Args:
        seed: Draws the problems: number ``index`` is the same in every process.
        prefix: Begins every uid.
        shape: How they look.
    """

    def __init__(self, seed: int, prefix: str, shape: DigitTaskShape) -> None:
        self._seed = seed
        self._prefix = prefix
        self._shape = shape

    @property
    def size(self) -> None:
        """Without end."""
        return None

    def problem(self, index: int) -> Problem:
        """See ``RolloutTask``."""
        draw = problem_draws(self._seed, self._prefix, index).random
        shortest, longest, digits, _ = self._shape
        length = shortest + int(draw() * (longest - shortest + 1))
        drawn = [int(draw() * digits) for _ in range(length)]
        question = {"role": "user", "content": self.question(drawn)}
        return Problem(f"{self._prefix}-{index}", (question,), self.answer(drawn))

    def respond(self, problem: Problem, turns: Sequence[PolicyTurn]) -> EnvStep:
        """See ``RolloutTask``; a row is over after its first turn."""
        return EnvStep(credit(problem.answer, turns[-1], self._shape.partial_credit))

    def question(self, digits: Sequence[int]) -> str:
        """What the policy is shown."""
        return "".join(map(str, digits))

    @abstractmethod
    def answer(self, digits: Sequence[int]) -> str:
        """What it is to write."""


class Emit(DigitTask):
    """Write the target, whatever is asked; the other arguments are ``DigitTask``'s."""

    def __init__(self, seed: int, prefix: str, shape: DigitTaskShape, target: str) -> None:
        super().__init__(seed, prefix, shape)
        self._target = target

    def answer(self, digits: Sequence[int]) -> str:  # noqa: ARG002
        """The target."""
        return self._target


class Copy(DigitTask):
    """Write the digits."""

    def answer(self, digits: Sequence[int]) -> str:
        """The digits as they stand."""
        return "".join(map(str, digits))


class Sort(DigitTask):
    """Write the digits in ascending order."""

    def answer(self, digits: Sequence[int]) -> str:
        """The digits, smallest first."""
        return "".join(map(str, sorted(digits)))


class Sum(DigitTask):
    """Write the last digit of the sum, in a system of so many digits."""

    def question(self, digits: Sequence[int]) -> str:
        """The terms."""
        return "+".join(map(str, digits))

    def answer(self, digits: Sequence[int]) -> str:
        """The sum modulo the number of digits."""
        return str(sum(digits) % self._shape.digits)


def credit(answer: str, turn: PolicyTurn, partial: bool) -> float:
    """Reward of a response of which ``answer`` is due.

    Exact: 1 for the answer and its end, 0 for anything else. Partial: with m of the answer's A
    characters right before the first wrong one, m / (A + 1), and 1 with the end in its place.
    """
    if turn.ended and turn.text == answer:
        return 1.0
    if not partial:
        return 0.0
    pairs = zip(answer, turn.text, strict=False)
    right = next((place for place, (due, came) in enumerate(pairs) if due != came), None)
    if right is None:
        right = min(len(answer), len(turn.text))
    return right / (len(answer) + 1)


def problem_draws(seed: int, prefix: str, index: int) -> Random:
    """A generator for problem ``index``.

    Only its method ``random`` is sure to keep its numbers from one Python to the next.
    """
    if index < 0:
        raise ValueError(f"problems are numbered from 0, got {index}")
    return Random(f"{seed}/{prefix}/{index}")

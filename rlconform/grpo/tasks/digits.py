"""Synthetic problems on digits, with exact rewards and without a download.

emit   "413"    ──▶ "7"      the target, for every question
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
    """Size of the problems.

    Attributes:
        min_length: Minimum digits of a problem.
        max_length: Maximum digits of a problem.
        digits: The digits are 0 to ``digits - 1``.
        partial_credit: Whether partly right answers get a reward, see ``credit``.
    """

    min_length: int = 1
    max_length: int = 1
    digits: int = 10
    partial_credit: bool = False


class DigitTask(RolloutTask):
    """Base class of the tasks on digits, with one turn per row.

    Args:
        seed: Seed of the problems.
        prefix: Prefix of every uid.
        shape: Size of the problems.
    """

    def __init__(self, seed: int, prefix: str, shape: DigitTaskShape) -> None:
        self._seed = seed
        self._prefix = prefix
        self._shape = shape

    @property
    def size(self) -> None:
        """No limit."""
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
        """Reward the turn, which ends the row."""
        return EnvStep(credit(problem.answer, turns[-1], self._shape.partial_credit))

    def question(self, digits: Sequence[int]) -> str:
        """Return the question for these digits."""
        return "".join(map(str, digits))

    @abstractmethod
    def answer(self, digits: Sequence[int]) -> str:
        """Return the right answer."""


class Emit(DigitTask):
    """The answer is always the target."""

    def __init__(self, seed: int, prefix: str, shape: DigitTaskShape, target: str) -> None:
        super().__init__(seed, prefix, shape)
        self._target = target

    def answer(self, digits: Sequence[int]) -> str:  # noqa: ARG002
        """Return the target."""
        return self._target


class Copy(DigitTask):
    """The answer is the question."""

    def answer(self, digits: Sequence[int]) -> str:
        """Return the digits unchanged."""
        return "".join(map(str, digits))


class Sort(DigitTask):
    """The answer is the digits in ascending order."""

    def answer(self, digits: Sequence[int]) -> str:
        """Return the sorted digits."""
        return "".join(map(str, sorted(digits)))


class Sum(DigitTask):
    """The answer is the sum of the digits modulo their number."""

    def question(self, digits: Sequence[int]) -> str:
        """Return the terms of the sum."""
        return "+".join(map(str, digits))

    def answer(self, digits: Sequence[int]) -> str:
        """Return the sum."""
        return str(sum(digits) % self._shape.digits)


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
    right = next((i for i, (expected, got) in enumerate(pairs) if expected != got), None)
    if right is None:
        right = min(len(answer), len(turn.text))
    return right / (len(answer) + 1)


def problem_draws(seed: int, prefix: str, index: int) -> Random:
    """Create the random generator of problem ``index``.

    Only its method ``random`` gives the same numbers in every version of Python.
    """
    if index < 0:
        raise ValueError(f"expected an index of at least 0; got {index}")
    return Random(f"{seed}/{prefix}/{index}")

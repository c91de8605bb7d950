"""What a task is: problems by number, and an environment that answers and rewards.

    problem(index) ──▶ messages ──▶ policy's turn ──▶ respond(problem, turns) ──▶ reward
                                        ▲                      └── observation, if it goes on
                                        └──────────────────────┘

Pure: the same number gives the same problem, the same turns the same reward, in every process, so
that nothing but numbers needs saving.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One thing to solve.

    Attributes:
        uid: Unique in its run; its rows are ``<uid>_g0``, ``<uid>_g1``, ...
        messages: ``role`` and ``content`` of each: what the policy is given first.
        answer: What is right.
        info: Primitives that only the task reads.
    """

    uid: str
    messages: tuple[Mapping[str, str], ...]
    answer: str
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PolicyTurn:
    """What the policy wrote in one turn.

    Attributes:
        text: Without the end token.
        ended: Whether it came to an end by itself, rather than being cut off.
    """

    text: str
    ended: bool


@dataclass(frozen=True)
class EnvStep:
    """The environment's answer to a turn.

    Attributes:
        reward: Of this turn; a row's is the sum over its turns.
        observation: What the policy is told next; None ends the row.
    """

    reward: float
    observation: str | None = None


class RolloutTask(ABC):
    """Problems and their environment.

    Example:
        task = build_task(config.data, seed=config.grpo.seed, split="train")
        problem = task.problem(17)
        outcome = task.respond(problem, [PolicyTurn("7", ended=True)])
    """

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Number of problems, after which they come again; None without end."""

    @abstractmethod
    def problem(self, index: int) -> Problem:
        """Problem number ``index``, from 0 on.

        A finite task starts again after the last one; uids differ all the same.
        """

    @abstractmethod
    def respond(self, problem: Problem, turns: Sequence[PolicyTurn]) -> EnvStep:
        """Judge the last of the policy's turns so far, one or more."""

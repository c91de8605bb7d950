"""``RolloutTask``: the interface of tasks, with numbered problems and an environment that rewards.

    problem(index) ──▶ messages ──▶ policy's turn ──▶ respond(problem, turns) ──▶ reward
                                        ▲                      └── observation, if it goes on
                                        └──────────────────────┘

Tasks are pure: in every process the same index gives the same problem, and the same turns get the
same reward. So a checkpoint needs only the index of the next problem.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One problem of a task.

    Attributes:
        uid: Id, unique in the run; the rows are ``<uid>_g0``, ``<uid>_g1``, ...
        messages: The prompt, as messages with ``role`` and ``content``.
        answer: The right answer.
    """

    uid: str
    messages: tuple[Mapping[str, str], ...]
    answer: str


@dataclass(frozen=True)
class PolicyTurn:
    """The policy's text in one turn.

    Attributes:
        text: The text without the end token.
        ended: Whether the policy wrote the end token; False if the turn was cut off.
    """

    text: str
    ended: bool


@dataclass(frozen=True)
class EnvStep:
    """The environment's response to a turn.

    Attributes:
        reward: Reward of this turn; a row's reward is the sum over its turns.
        observation: Text of the environment's turn; None ends the row.
    """

    reward: float
    observation: str | None = None


class RolloutTask(ABC):
    """A task: its problems and their environment.

    Example:
        task = build_task(config.data, seed=config.grpo.seed, split="train")
        problem = task.problem(17)
        env_step = task.respond(problem, [PolicyTurn("7", ended=True)])
    """

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Number of problems in an epoch; None if there is no limit."""

    @abstractmethod
    def problem(self, index: int) -> Problem:
        """Return problem ``index``, counted from 0.

        A finite task repeats its problems in further epochs, with new uids.
        """

    @abstractmethod
    def respond(self, problem: Problem, turns: Sequence[PolicyTurn]) -> EnvStep:
        """Reward the last of the policy's turns so far, and continue or end the row."""

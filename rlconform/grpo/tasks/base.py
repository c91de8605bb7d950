"""``RolloutTask``, the interface of tasks: numbered problems and an environment that rewards turns.

    problem(index) ──▶ messages ──▶ policy's turn ──▶ respond(problem, turns) ──▶ reward
                                        ▲                      └── observation, unless the row ends
                                        └──────────────────────┘

Tasks are pure: in every process the same index gives the same problem, and the same turns get the
same reward. Therefore a checkpoint needs only the index of the next problem.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from rlconform.grpo.config import DataConfig

Split = Literal["train", "val"]


@dataclass(frozen=True)
class Problem:
    """One problem of a task: its prompt as messages with ``role`` and ``content``, and the answer.

    ``uid`` is unique in the run; the problem's rows are ``<uid>_g0``, ``<uid>_g1``, ...
    """

    uid: str
    messages: tuple[Mapping[str, str], ...]
    answer: str
    data_source: str = ""  # name of the data set, by which a reward function may choose its rule
    extra_info: Mapping[str, Any] = field(default_factory=dict)  # of this problem alone


@dataclass(frozen=True)
class PolicyTurn:
    """The policy's text in one turn, without the end token."""

    text: str
    ended: bool  # whether the policy wrote the end token; False if the turn was cut off


@dataclass(frozen=True)
class EnvStep:
    """The environment's response to a turn."""

    reward: float  # of this turn; a row's reward is the sum over its turns
    observation: str | None = None  # text of the environment's turn; None ends the row
    #: Parts of the reward by name, which ``adv_estimator.name: gdpo`` compares separately.
    components: Mapping[str, float] = field(default_factory=dict)
    #: Results of the tools that the turn has called, one per call, if the observation is made of
    #: them. Where the chat template knows the role ``tool``, each is a message of this role.
    tool_results: tuple[str, ...] = ()


class RolloutTask(ABC):
    """A task of a ``data:`` block: its problems and their environment."""

    #: Number of problems in an epoch; None if there is no limit.
    size: int | None = None

    @abstractmethod
    def problem(self, index: int) -> Problem:
        """Return problem ``index``, from 0; a finite task repeats its problems with new uids."""

    @abstractmethod
    def respond(self, problem: Problem, turns: Sequence[PolicyTurn]) -> EnvStep:
        """Reward the policy's last turn, and continue the row with an observation or end it.

        Several threads may call it at once.
        """


class QuestionTask(RolloutTask):
    """A task whose problems are questions with an answer, each made from its number."""

    #: Messages before each question.
    _system: tuple[Mapping[str, str], ...] = ()

    def __init__(self, config: DataConfig, seed: int, split: Split) -> None:
        self._config = config
        self._seed = seed
        self._split = split

    def problem(self, index: int) -> Problem:
        """Return problem ``index``; ``ValueError`` if it is negative."""
        if index < 0:
            raise ValueError(f"expected an index of at least 0; got {index}")
        question, answer = self._question_and_answer(index)
        messages = (*self._system, {"role": "user", "content": question})
        source, extra = self._source_and_extra_info(index)
        return Problem(f"{self._split}-{index}", messages, answer, source, extra)

    @abstractmethod
    def _question_and_answer(self, index: int) -> tuple[str, str]:
        """Return the question and the answer of problem ``index``."""

    def _source_and_extra_info(self, index: int) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Return the data source and the extra info of problem ``index``, for reward functions."""
        return self._config.task, {}

    def _random(self, key: object) -> Random:
        """Create a generator for ``key``; only its ``random()`` is equal in all Python versions."""
        return Random(f"{self._seed}/{self._split}/{key}")

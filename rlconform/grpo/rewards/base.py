"""``RewardScorer``: the interface of everything that rewards a finished row.

    reward loop ── score(request) ──▶ rule-based function │ batching executor ──▶ reward workers
                ◀── Reward, or RewardFailure ─────────────┘ HTTP service

A request and its answer carry the sample id and the attempt, because answers come out of order and
late: an answer of another row, or of an attempt that was given up, must be recognised as such.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlconform.grpo.tasks.base import EnvStep, PolicyTurn, Problem, Split


@dataclass(frozen=True)
class RewardRequest:
    """One finished row that needs a reward; picklable."""

    sample_id: str  # <group_id>_g<i>
    attempt: int  # how often this row was scored before; 0 at first
    problem: Problem  # prompt, answer, data source and extra info of this row alone
    turns: tuple[PolicyTurn, ...]  # what the policy wrote, one per turn; a text may be empty
    split: Split  # ``val`` for rows of a validation, which are never trained on
    #: The environment's answers, one per turn; the task's own rule has put its rewards there.
    environment: tuple[EnvStep, ...] = ()


@dataclass(frozen=True)
class Reward:
    """The answer to one ``RewardRequest``."""

    sample_id: str  # of the request
    attempt: int  # of the request
    value: float  # of the whole row; finite
    #: Parts of the reward by name, which ``adv_estimator.name: gdpo`` compares separately.
    components: Mapping[str, float] = field(default_factory=dict)
    #: A process reward per turn of the policy; empty if the scorer has only one for the row.
    turn_values: tuple[float, ...] = ()
    #: What else the scorer says of this row; rows may have different keys.
    extra: Mapping[str, Any] = field(default_factory=dict)


class RewardScorer(ABC):
    """Scores rows; many calls may be open at once in one event loop."""

    @abstractmethod
    async def score(self, request: RewardRequest) -> Reward:
        """Return the reward of a row.

        Raises:
            RewardFailure: The row has no reward; other rows are not affected.
        """

    async def close(self) -> None:  # noqa: B027 - not every scorer holds something
        """Answer or fail what is open, and release what the scorer holds. Idempotent."""

"""``Part``: what the self-test tries a part with: drawn plans, how one happens, and the judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis.strategies import SearchStrategy

from rlconform.grpo.history_finding import HistoryFinding
from rlconform.grpo.queue.queue_judge import QUEUE_RULES, judge_queue
from rlconform.grpo.rewards.executor_history import EXECUTOR_RULES, judge_executor
from rlconform.grpo.rewards.row_history import ROW_RULES, judge_rows
from rlconform.grpo.simulation.executor_play import play_executor
from rlconform.grpo.simulation.queue_play import play_queue
from rlconform.grpo.simulation.reward_play import EMPTY_REWARD, play_rewards
from rlconform.selftest.part_plans import executor_plans, queue_plans, reward_plans


@dataclass(frozen=True)
class Part:
    """A part of the trainer with its judge."""

    name: str
    rules: Mapping[str, str]  # of the judge, each with what it holds
    plans: SearchStrategy[Any]
    findings: Callable[[Any], list[HistoryFinding]]  # what the judge says when a plan happens


PARTS = (
    Part(
        "batching executor",
        EXECUTOR_RULES,
        executor_plans(),
        lambda plan: judge_executor(play_executor(plan)),
    ),
    Part(
        "trajectory queue", QUEUE_RULES, queue_plans(), lambda plan: judge_queue(play_queue(plan))
    ),
    Part(
        "rewards of rows",
        ROW_RULES,
        reward_plans(),
        lambda plan: judge_rows(play_rewards(plan), EMPTY_REWARD),
    ),
)

#: The rules of all judges, in the order of the page.
PART_RULES = tuple(rule for part in PARTS for rule in part.rules)


def part_with(rule: str) -> Part:
    """Return the part whose judge has this rule; ``LookupError`` if none has."""
    for part in PARTS:
        if rule in part.rules:
            return part
    raise LookupError(f"expected a rule of a part; got {rule!r}")

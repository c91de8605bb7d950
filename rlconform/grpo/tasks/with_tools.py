"""``TaskWithTools``: a task whose policy may call tools before it answers.

policy's turn ── calls? ──▶ tools ──▶ results, messages of the role tool ──▶ next turn
                    └─ no ──▶ the task's own reward
"""

from __future__ import annotations

from collections.abc import Sequence

from rlconform.grpo.config import DataConfig
from rlconform.grpo.tasks.base import EnvStep, PolicyTurn, Problem, RolloutTask
from rlconform.grpo.tools.base import Tool
from rlconform.grpo.tools.calculator import Calculator
from rlconform.grpo.tools.call_runner import CallRunner
from rlconform.grpo.tools.retrieval import Retrieval
from rlconform.grpo.tools.tool_calls import DigitCalls, HermesCalls, ToolFormat

_FORMATS: dict[str, type[ToolFormat]] = {"hermes": HermesCalls, "digits": DigitCalls}


class TaskWithTools(RolloutTask):
    """Runs the calls of each turn; a turn without a call is an answer, which the task rewards.

    A row ends without a reward after ``data.max_repeated_calls`` calls that it had made before.
    """

    def __init__(self, task: RolloutTask, config: DataConfig) -> None:
        self._task = task
        self.size = task.size
        self._max_repeated_calls = config.max_repeated_calls
        self._calls = CallRunner(_tools(config), _FORMATS[config.tool_format]())

    def problem(self, index: int) -> Problem:
        """Return the task's problem."""
        return self._task.problem(index)

    def respond(self, problem: Problem, turns: Sequence[PolicyTurn]) -> EnvStep:
        """Answer the calls of the last turn, or let the task reward it."""
        if not turns[-1].ended:
            return self._task.respond(problem, turns)
        texts = [turn.text for turn in turns]
        repeated = 0
        for number, text in enumerate(texts):
            repeated += self._calls.repeated(text, texts[:number])
        if repeated > self._max_repeated_calls:
            return EnvStep(0.0)
        results = self._calls.run(texts[-1], texts[:-1]).texts
        if not results:
            return self._task.respond(problem, turns)
        return EnvStep(0.0, "\n".join(results), tool_results=results)


def _tools(config: DataConfig) -> list[Tool]:
    tools: list[Tool] = []
    if "calculator" in config.tools:
        tools.append(Calculator())
    if config.retrieval_url is not None and "retrieval" in config.tools:
        tools.append(Retrieval(config.retrieval_url))
    return tools

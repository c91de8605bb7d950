"""Verifiable tasks: problems, and an environment that rewards the answers."""

from rlconform.grpo.config import DataConfig
from rlconform.grpo.tasks.base import EnvStep, PolicyTurn, Problem, QuestionTask, RolloutTask, Split
from rlconform.grpo.tasks.dataloader import Dataloader
from rlconform.grpo.tasks.digits import DigitTask
from rlconform.grpo.tasks.guess_digit import GuessDigit
from rlconform.grpo.tasks.jsonl import JSONLines
from rlconform.grpo.tasks.with_tools import TaskWithTools

__all__ = [
    "Dataloader",
    "EnvStep",
    "PolicyTurn",
    "Problem",
    "RolloutTask",
    "Split",
    "build_task",
]

_TASKS: dict[str, type[QuestionTask]] = {"guess": GuessDigit, "jsonl": JSONLines}


def build_task(config: DataConfig, seed: int, split: Split = "train") -> RolloutTask:
    """Create the task of a ``data:`` block; training and validation have different problems.

    The seed determines synthetic problems, and the order of a file's problems. ``ConfigError`` if
    the file can't be used, or if ``val`` has no file.
    """
    task = _TASKS.get(config.task, DigitTask)(config, seed, split)
    return TaskWithTools(task, config) if config.tools else task

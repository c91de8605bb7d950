"""Verifiable tasks: what is asked, and whether the answer is right."""

from rlconform.grpo.tasks.dataloader import Dataloader
from rlconform.grpo.tasks.factory import Split, build_task
from rlconform.grpo.tasks.task import Outcome, PolicyTurn, Problem, Task

__all__ = [
    "Dataloader",
    "Outcome",
    "PolicyTurn",
    "Problem",
    "Split",
    "Task",
    "build_task",
]

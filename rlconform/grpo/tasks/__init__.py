"""Verifiable tasks: problems, and an environment that rewards the answers."""

from rlconform.grpo.tasks.base import EnvStep, PolicyTurn, Problem, RolloutTask
from rlconform.grpo.tasks.dataloader import Dataloader
from rlconform.grpo.tasks.factory import Split, build_task

__all__ = [
    "Dataloader",
    "EnvStep",
    "PolicyTurn",
    "Problem",
    "RolloutTask",
    "Split",
    "build_task",
]

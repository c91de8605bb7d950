"""Batches of problems, in an order that the seed alone decides, from wherever a run stopped."""

from __future__ import annotations

from collections.abc import Mapping

from rlconform.grpo.tasks.base import Problem, RolloutTask


class Dataloader:
    """Problems 0, 1, 2, ... of a task, batch by batch, without end.

    Example:
        loader = Dataloader(task)
        problems = loader.take(32)
        saved = loader.state_dict()          # {"position": 32}
        Dataloader(task).load_state_dict(saved)

    Attributes:
        position: Problems taken so far.
    """

    def __init__(self, task: RolloutTask) -> None:
        self._task = task
        self.position = 0

    def take(self, count: int) -> list[Problem]:
        """The next ``count`` problems. ``ValueError`` for a count below 1."""
        if count < 1:
            raise ValueError(f"take at least 1 problem, got {count}")
        first = self.position
        self.position += count
        return [self._task.problem(index) for index in range(first, self.position)]

    def state_dict(self) -> dict[str, int]:
        """What ``load_state_dict`` goes on from."""
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from a saved state. ``ValueError`` where it holds no position."""
        position = state.get("position")
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise ValueError(f"a dataloader's state holds its position, got {dict(state)}")
        self.position = position

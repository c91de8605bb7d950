"""``Dataloader``: batches of a task's problems, with a position that a checkpoint stores."""

from __future__ import annotations

from collections.abc import Mapping

from rlconform.grpo.tasks.base import Problem, RolloutTask


class Dataloader:
    """Takes problems 0, 1, 2, ... of a task, batch by batch, without a limit."""

    def __init__(self, task: RolloutTask) -> None:
        self._task = task
        #: Number of problems taken so far.
        self.position = 0

    def take(self, count: int) -> list[Problem]:
        """Take the next ``count`` problems; ``ValueError`` for a count below 1."""
        if count < 1:
            raise ValueError(f"take at least 1 problem, got {count}")
        first = self.position
        self.position += count
        return [self._task.problem(index) for index in range(first, self.position)]

    def has(self, count: int, epochs: int | None) -> bool:
        """Whether ``count`` problems are left of this number of passes over the task.

        That is always so for ``None`` passes, and for a task without a size.
        """
        size = self._task.size
        return size is None or epochs is None or self.position + count <= epochs * size

    def state_dict(self) -> dict[str, int]:
        """Return the state for ``load_state_dict``."""
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restore a saved state; ``ValueError`` if ``state`` has no valid position."""
        position = state.get("position")
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise ValueError(f"expected a dataloader's state with its position; got {dict(state)}")
        self.position = position

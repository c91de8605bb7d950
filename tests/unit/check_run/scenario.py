"""``Scenario``: what kind of framework is modelled; and the state of the model."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Scenario:
    """What kind of framework it is, and what goes wrong and is handled rightly."""

    sampler: str = "ready_first"  # in_order, ready_first, freshest, weight_fifo
    bound: int = 1  # versions
    group_size: int = 2
    prompts_per_step: int = 2
    steps: int = 4
    engines: int = 2
    sync: str = "drain"  # drain, in_flight or abort
    plane: bool = True
    failures: float = 0.0  # probability that a row fails
    filters: float = 0.0  # probability that a group is dropped as uniform
    unrewarded: float = 0.0  # probability that the reward of a row fails
    engine_dies_in_step: int | None = None
    crash_after_step: int | None = None  # the driver dies; it has a checkpoint after each step
    same_names: bool = False  # whether another attempt of a group has the same group_id
    ranks: int = 1  # data-parallel ranks that each write the rows that they train on
    seed: int = 0


@dataclass
class ModelRow:
    """A row of a group, and what it is about to do next."""

    attempt: int = 0
    state: str = "new"  # new, running, cut, finished, rewarded
    engine: int = 0
    first: int = 0
    last: int = 0
    unrewarded: bool = False


@dataclass
class ModelGroup:
    """A group that is in flight or ready."""

    group_id: str
    prompt: int
    attempt: int
    rows: list[ModelRow]

    @property
    def rewarded(self) -> list[int]:
        """Numbers of the rows that are trained on."""
        return [number for number, row in enumerate(self.rows) if not row.unrewarded]

    @property
    def first(self) -> int:
        """Version of its oldest token; of one that is not begun, very high."""
        return min((row.first for row in self.rows if row.state != "new"), default=10**9)


@dataclass
class ModelState:
    """What a checkpoint holds."""

    next_prompt: int = 0
    step: int = 0  # steps that are done; also the trainer's version
    flight: list[ModelGroup] = field(default_factory=list)
    ready: list[ModelGroup] = field(default_factory=list)
    retry: list[tuple[int, int]] = field(default_factory=list)  # prompts and attempts
    dispatched: int = 0
    trained: int = 0
    dropped: int = 0

"""``CheckpointMark``: what a checkpoint knows of the groups, to which a resumed run returns."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

from rlconform.check_run.lives import GroupLife
from rlconform.events.schema import DropCause, Record


@dataclass
class Totals:
    """Numbers of groups; what a resume undoes is not counted."""

    dispatched: int = 0
    trained: int = 0
    dropped: Counter[DropCause] = field(default_factory=Counter)

    def copy(self) -> Totals:
        """Return an independent copy."""
        return Totals(self.dispatched, self.trained, Counter(self.dropped))


@dataclass
class CheckpointMark:
    """The state when a checkpoint was saved."""

    record: Record
    step: int
    open_groups: dict[str, GroupLife]
    totals: Totals
    # Digests of what was closed until the next checkpoint.
    groups_closed: array[int] = field(default_factory=lambda: array("Q"))
    prompts_closed: array[int] = field(default_factory=lambda: array("Q"))

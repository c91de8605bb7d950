"""``QueueHistory``: what the clients of a trajectory queue asked for and got, and when.

    clients: put, get, advance, drops, close ── asked, ended ──▶ QueueHistory ──▶ judge_queue

A history ends when nothing can happen any more. The queue was closed and drained before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rlconform.grpo.queue.trajectory_queue import PutOutcome

#: The client that drains the queue after all others have ended.
OWNER = "owner"


@dataclass
class PutLife:
    """One put; ``outcome`` is None while it waits, and stays so if its client was cancelled."""

    producer: str
    group: str
    start: int  # version that the staleness is counted from
    asked: float
    ended: float | None = None
    outcome: PutOutcome | None = None
    cancelled: bool = False


@dataclass
class GetLife:
    """One get of ``least`` to ``most`` groups; groups of a cancelled one count for nobody."""

    consumer: str
    most: int
    least: int
    version: int
    asked: float
    ended: float | None = None
    groups: tuple[str, ...] = ()
    end_marker: bool = False
    cancelled: bool = False


@dataclass(frozen=True)
class QueueLimits:
    """What was agreed on; ``slack_s``: a call is in the queue by then, and its answer is back."""

    capacity: int
    on_full: Literal["wait", "refuse"]
    max_staleness: int | None
    slack_s: float


@dataclass
class QueueHistory:
    """Calls, each kind in the order in which it was asked for."""

    limits: QueueLimits
    puts: list[PutLife] = field(default_factory=list)
    gets: list[GetLife] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)  # as the queue has listed them
    advances: list[tuple[float, int]] = field(default_factory=list)  # when asked, and the version
    closed: float | None = None  # when ``close`` was called first

    @property
    def gave_back(self) -> bool:
        """Whether a cancelled get may have given groups back."""
        return any(get.cancelled for get in self.gets)

    def newest_version(self, until: float) -> int:
        """Return the highest version that the queue may know at this time."""
        told = [(get.asked, get.version) for get in self.gets]
        return max((v for asked, v in [*self.advances, *told] if asked <= until), default=0)

    def got(self) -> dict[str, GetLife]:
        """Return the get of each group."""
        return {group: get for get in self.gets for group in get.groups}

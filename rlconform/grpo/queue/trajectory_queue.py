"""``TrajectoryQueue``: metas of groups between producers and consumers, first in, first out.

    put ─▶ waits for room ─▶ in the queue ─▶ got by a consumer
     │           │                │   ▲          │
     │           │                │   └─ cancel ─┘  back to the front
     └─ full, stale, closed ◀─────┘ too old: dropped, and listed in ``drops_after``

The state machine never waits. ``put`` and ``get`` return a request whose outcome is set now or by a
later call, and ``cancel`` takes a request back. So every order of events can be tested without
an event loop; ``queue_actor`` adds the waiting. Rows never pass here, they are in the plane.

At each moment ``accepted = got + size + dropped``. A group is too old if it started more than
``max_staleness`` versions before the trainer's version: it is refused by ``put``, and a queued one
is dropped by ``advance``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from rlconform.events.schema import Dequeued, Queued, RunEvent
from rlconform.grpo.replay.errors import DuplicateGroup
from rlconform.grpo.replay.slots import DropReason, GroupRecord
from rlconform.grpo.replay.versions import is_stale


class PutOutcome(Enum):
    """What the queue did with a group."""

    ACCEPTED = "accepted"
    FULL = "full"  # refused: there is no room (``on_full: refuse``)
    STALE = "stale"  # refused: too old
    CLOSED = "closed"  # refused: the queue is closed
    WITHDRAWN = "withdrawn"  # the put was cancelled while it waited


@dataclass(frozen=True)
class QueuedGroup:
    """A group whose rows are in the plane, with the version that its staleness is counted from."""

    group_id: str
    start_version: int
    record: GroupRecord
    stamp: int = 0  # the producer's clock of the event log


@dataclass(frozen=True)
class QueueBatch:
    """What a consumer gets; ``ended``: the queue is closed and empty, there will be no more."""

    groups: tuple[QueuedGroup, ...] = ()
    ended: bool = False
    stamp: int = 0  # the queue's clock of the event log


@dataclass(frozen=True)
class QueueDrop:
    """A group that the queue had accepted and has dropped; drops are numbered from 1."""

    number: int
    group_id: str
    reason: DropReason


@dataclass(frozen=True)
class QueueStatistics:
    """Counts of groups since the queue was made, and of calls that wait now."""

    accepted: int
    got: int
    size: int
    dropped: dict[str, int]  # by reason
    refused: dict[str, int]  # by outcome of the put
    waiting_puts: int
    waiting_gets: int
    version: int


@dataclass(eq=False)
class PutRequest:
    """A put; ``outcome`` is None while it waits for room."""

    group: QueuedGroup
    outcome: PutOutcome | None = None


@dataclass(eq=False)
class GetRequest:
    """A get of ``least`` to ``most`` groups; ``outcome`` is None while it waits."""

    most: int
    least: int
    outcome: QueueBatch | None = None


@dataclass
class TrajectoryQueue:
    """At most ``capacity`` groups; ``max_staleness`` None accepts groups of any age."""

    capacity: int
    on_full: Literal["wait", "refuse"] = "wait"
    max_staleness: int | None = None
    version: int = 0  # the trainer's
    closed: bool = False
    write: Callable[[RunEvent], None] = lambda _: None  # gets an event per group that comes or goes
    _groups: deque[QueuedGroup] = field(default_factory=deque)
    _puts: deque[PutRequest] = field(default_factory=deque)  # that wait for room
    _gets: deque[GetRequest] = field(default_factory=deque)  # that wait for groups
    _accepted: int = 0
    _got: int = 0
    _dropped: Counter[str] = field(default_factory=Counter)
    _refused: Counter[str] = field(default_factory=Counter)
    _drops: deque[QueueDrop] = field(default_factory=deque)

    def put(self, group: QueuedGroup) -> PutRequest:
        """Add a group behind all others, or wait for room, or refuse it.

        Puts that wait get room in their order, so groups of one producer stay in order. Raises
        ``DuplicateGroup`` if the group is in the queue or waits for room already.
        """
        held = {each.group_id for each in self._groups} | {
            each.group.group_id for each in self._puts
        }
        if group.group_id in held:
            raise DuplicateGroup(f"group {group.group_id!r} is in the queue already")
        request = PutRequest(group)
        if self.closed:
            self._refuse(request, PutOutcome.CLOSED)
        elif self._is_stale(group):
            self._refuse(request, PutOutcome.STALE)
        elif self.on_full == "refuse" and len(self._groups) >= self.capacity:
            self._refuse(request, PutOutcome.FULL)
        else:
            self._puts.append(request)
            self._settle()
        return request

    def get(self, most: int, least: int = 1) -> GetRequest:
        """Take the ``most`` oldest groups, as soon as ``least`` are there.

        Gets are served in their order. Once the queue is closed, a get takes what is left, and then
        only ``ended``. Raises ``ValueError`` for a number of groups that the queue can never have.
        """
        if not 1 <= least <= most or least > self.capacity:
            raise ValueError(
                f"expected 1 <= least <= most, and least within the capacity {self.capacity}; got "
                f"least {least} and most {most}"
            )
        request = GetRequest(most, least)
        self._gets.append(request)
        self._settle()
        return request

    def cancel(self, request: PutRequest | GetRequest) -> None:
        """Take a request back: a waiting one ends; the groups of a get return to the front.

        A put that was accepted stays accepted.
        """
        if isinstance(request, PutRequest):
            if request.outcome is None:
                self._puts.remove(request)
                request.outcome = PutOutcome.WITHDRAWN
            return
        if request.outcome is None:
            self._gets.remove(request)
        else:
            groups = request.outcome.groups
            self._groups.extendleft(reversed(groups))
            self._got -= len(groups)
            for group in groups:
                self.write(Queued(group_id=group.group_id))
        request.outcome = QueueBatch()
        self._sweep()
        self._settle()

    def advance(self, version: int) -> None:
        """Note the trainer's version, which never goes back, and drop what is too old for it."""
        if version > self.version:
            self.version = version
            self._sweep()
            self._settle()

    def close(self) -> None:
        """Refuse all puts from now on, those that wait as well. Idempotent."""
        self.closed = True
        while self._puts:
            self._refuse(self._puts.popleft(), PutOutcome.CLOSED)
        self._settle()

    def drops_after(self, number: int) -> tuple[QueueDrop, ...]:
        """Return the drops after this number, and forget the others: the caller has seen them.

        An answer that is lost can be asked for again, so no drop stays unknown.
        """
        while self._drops and self._drops[0].number <= number:
            self._drops.popleft()
        return tuple(self._drops)

    def statistics(self) -> QueueStatistics:
        """Return the counts of this moment."""
        return QueueStatistics(
            accepted=self._accepted,
            got=self._got,
            size=len(self._groups),
            dropped=dict(self._dropped),
            refused=dict(self._refused),
            waiting_puts=len(self._puts),
            waiting_gets=len(self._gets),
            version=self.version,
        )

    def _settle(self) -> None:
        """Admit puts and serve gets until neither is possible."""
        while self._admit() or self._serve():
            pass

    def _admit(self) -> bool:
        """Give room to the put that has waited longest; return whether there was one."""
        if not self._puts or len(self._groups) >= self.capacity:
            return False
        request = self._puts.popleft()
        self._groups.append(request.group)
        self._accepted += 1
        self.write(Queued(group_id=request.group.group_id))
        request.outcome = PutOutcome.ACCEPTED
        return True

    def _serve(self) -> bool:
        """Serve the get that has waited longest; return whether it could be."""
        if not self._gets or (len(self._groups) < self._gets[0].least and not self.closed):
            return False
        request = self._gets.popleft()
        count = min(request.most, len(self._groups))
        self._got += count
        taken = tuple(self._groups.popleft() for _ in range(count))
        for group in taken:
            self.write(Dequeued(group_id=group.group_id))
        request.outcome = QueueBatch(taken, ended=not taken)
        return True

    def _sweep(self) -> None:
        """Drop the queued groups that are too old, and refuse the waiting ones that are."""
        for group in [each for each in self._groups if self._is_stale(each)]:
            self._groups.remove(group)
            reason = DropReason.STALE
            self._dropped[reason.value] += 1
            number = self._dropped.total()
            self._drops.append(QueueDrop(number, group.group_id, reason))
        for request in [each for each in self._puts if self._is_stale(each.group)]:
            self._puts.remove(request)
            self._refuse(request, PutOutcome.STALE)

    def _refuse(self, request: PutRequest, outcome: PutOutcome) -> None:
        request.outcome = outcome
        self._refused[outcome.value] += 1

    def _is_stale(self, group: QueuedGroup) -> bool:
        bound = self.max_staleness
        return bound is not None and is_stale(group.start_version, self.version, bound)

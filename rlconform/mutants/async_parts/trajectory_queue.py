"""Groups that the trajectory queue loses, serves twice, too late, or in another order."""

from __future__ import annotations

from rlconform.grpo.queue.queue_actor import CallId, QueueActor
from rlconform.grpo.queue.trajectory_queue import (
    GetRequest,
    PutOutcome,
    PutRequest,
    QueueBatch,
    QueuedGroup,
    QueueDrop,
    TrajectoryQueue,
)
from rlconform.mutants.async_parts.part_defect import part_defect
from rlconform.mutants.call import State

_LOST = "which was accepted, to be got or dropped; got neither"


@part_defect("queue_groups", evidence=_LOST, seen="rllm, verl#7037")
class DropsWhenFull(TrajectoryQueue):
    """Says of a group that it is accepted, and drops it, when the queue is full."""

    def put(self, group: QueuedGroup) -> PutRequest:
        if len(self._groups) >= self.capacity and not self.closed:
            return PutRequest(group, PutOutcome.ACCEPTED)
        return super().put(group)


@part_defect("queue_groups", evidence=_LOST, seen="verl#6975, SkyRL")
class EvictsTheOldestWhenFull(TrajectoryQueue):
    """Makes room for a new group by throwing the oldest one away."""

    def put(self, group: QueuedGroup) -> PutRequest:
        if len(self._groups) >= self.capacity and not self.closed:
            self._groups.popleft()
        return super().put(group)


@part_defect("queue_groups", evidence=_LOST, seen="NeMo-RL, AReaL#1396")
class GroupsOfACancelledGetLost(TrajectoryQueue):
    """Keeps nothing of a get whose client was cancelled after it was served."""

    def cancel(self, request: PutRequest | GetRequest) -> None:
        if isinstance(request, PutRequest) or request.outcome is None:
            super().cancel(request)


@part_defect("queue_groups", evidence=_LOST, seen="ray", may="queue_bounds")
class OvertakenCancellationIgnored(QueueActor):
    """Serves a get whose cancellation has overtaken it, so nobody reads the groups."""

    def _begins(self, call: CallId) -> bool:
        return super()._begins(call) or call.kind == "get"


@part_defect("queue_groups", evidence="to be got or dropped once; got it 2", seen="rllm")
class LastOfABatchServedAgain(TrajectoryQueue):
    """Leaves the last group of a batch in the queue, once."""

    _again = State(set[str])

    def _serve(self) -> bool:
        request = self._gets[0] if self._gets else None
        served = super()._serve()
        if served and request is not None and request.outcome is not None:
            left = [g for g in request.outcome.groups[-1:] if g.group_id not in self._again]
            self._again.update(group.group_id for group in left)
            self._groups.extendleft(left)
        return served


@part_defect("queue_groups", evidence=_LOST, seen="verl#6975, prime-rl#3050")
class SweptSilently(TrajectoryQueue):
    """Drops groups that are too old without saying so."""

    def drops_after(self, number: int) -> tuple[QueueDrop, ...]:
        self._drops.clear()
        return super().drops_after(number)


@part_defect("queue_order", evidence="which was put later", seen="verl")
class NewestGroupFirst(TrajectoryQueue):
    """Serves the group that came last."""

    def _serve(self) -> bool:
        self._groups.reverse()
        served = super()._serve()
        self._groups.reverse()
        return served


@part_defect("queue_order", evidence="which was put later", seen="NeMo-RL")
class ReturnedToTheBack(TrajectoryQueue):
    """Puts the groups of a cancelled get behind all others."""

    def cancel(self, request: PutRequest | GetRequest) -> None:
        if isinstance(request, PutRequest) or request.outcome is None:
            super().cancel(request)
            return
        self._groups.extend(request.outcome.groups)
        self._got -= len(request.outcome.groups)
        request.outcome = QueueBatch()
        self._sweep()
        self._settle()


@part_defect("queue_bounds", evidence="versions old; got", seen="verl#7569")
class TooOldIsServed(TrajectoryQueue):
    """Never looks again at the age of what it has accepted."""

    def _sweep(self) -> None:
        """Do nothing."""


@part_defect("queue_bounds", evidence="groups in the queue; got", seen="rllm, verl")
class RoomForOneMore(TrajectoryQueue):
    """Holds a group more than its capacity."""

    def _admit(self) -> bool:
        self.capacity += 1
        try:
            return super()._admit()
        finally:
            self.capacity -= 1


@part_defect("queue_bounds", evidence="as there is room; got it refused as full", seen="SkyRL#1607")
class FullOneTooEarly(TrajectoryQueue):
    """Refuses the group that would fill the queue."""

    def put(self, group: QueuedGroup) -> PutRequest:
        if self.on_full == "wait":
            return super().put(group)
        self.capacity -= 1
        try:
            return super().put(group)
        finally:
            self.capacity += 1


@part_defect("queue_bounds", evidence="groups; got", seen="NeMo-RL#3599")
class ShortBatchServed(TrajectoryQueue):
    """Serves a get with what is there, though it asked for more."""

    def get(self, most: int, least: int = 1) -> GetRequest:
        return super().get(most, 1)


@part_defect("queue_ends", evidence="expected an answer to the get", seen="rllm, verl#7990")
class EndMarkerLost(TrajectoryQueue):
    """Wakes nobody when it is closed, so consumers wait for ever."""

    def _serve(self) -> bool:
        return bool(self._groups) and super()._serve()


@part_defect("queue_groups", evidence=_LOST, seen="rllm", may="queue_ends")
class EndBeforeTheRest(TrajectoryQueue):
    """Serves the end marker first to gets that wait for more groups than are left."""

    def _serve(self) -> bool:
        if self.closed and self._gets and 0 < len(self._groups) < self._gets[0].most:
            self._gets.popleft().outcome = QueueBatch(ended=True)
            return True
        return super()._serve()


@part_defect("queue_ends", evidence="to get room, with", seen="SkyRL#1733")
class WaitingPutNotWoken(TrajectoryQueue):
    """Gives room to a waiting put when the next one comes, not when there is room."""

    def _settle(self) -> None:
        while self._serve():
            pass

    def put(self, group: QueuedGroup) -> PutRequest:
        request = super().put(group)
        super()._settle()
        return request


@part_defect("queue_ends", evidence="expected a get of", seen="NeMo-RL#3730")
class WaitsForOneGroupTooMany(TrajectoryQueue):
    """Serves a get when one group more than it asks for is there."""

    def _serve(self) -> bool:
        if self._gets and len(self._groups) <= self._gets[0].least and not self.closed:
            return False
        return super()._serve()


@part_defect("queue_ends", evidence="before the end; got one", seen="verl")
class EmptyIsTheEnd(TrajectoryQueue):
    """Answers a get on an empty queue with the end marker."""

    def get(self, most: int, least: int = 1) -> GetRequest:
        if not self._groups and not self.closed:
            return GetRequest(most, least, QueueBatch(ended=True))
        return super().get(most, least)

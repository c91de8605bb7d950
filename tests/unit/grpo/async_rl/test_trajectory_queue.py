"""The trajectory queue as a state machine: Hypothesis chooses any order of calls."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rlconform.grpo.queue.trajectory_queue import (
    GetRequest,
    PutOutcome,
    PutRequest,
    QueueBatch,
    QueuedGroup,
    TrajectoryQueue,
)
from rlconform.grpo.replay.errors import DuplicateGroup
from rlconform.grpo.replay.slots import DropReason
from rlconform.grpo.simulation.queue_play import queued


def names(request: GetRequest) -> list[str] | None:
    """The groups of a get in their order; None while it waits."""
    if request.outcome is None:
        return None
    return [each.group_id for each in request.outcome.groups]


class AnyOrder(RuleBasedStateMachine):
    """Producers and consumers of one queue, and a trainer whose version grows."""

    puts = Bundle("puts")
    gets = Bundle("gets")

    @initialize(
        capacity=st.integers(1, 4),
        refuses=st.booleans(),
        bound=st.one_of(st.none(), st.integers(0, 2)),
    )
    def begin(self, capacity: int, refuses: bool, bound: int | None) -> None:
        self.queue = TrajectoryQueue(capacity, "refuse" if refuses else "wait", bound)
        self.bound, self.refuses = bound, refuses
        self.put_requests: list[PutRequest] = []
        self.get_requests: list[GetRequest] = []
        self.cancelled: set[int] = set()  # ids of requests
        self.seen_drops: list[str] = []
        self.ever_given_back = False

    @rule(target=puts, producer=st.sampled_from("ab"), age=st.integers(0, 3))
    def put(self, producer: str, age: int) -> PutRequest:
        start = max(self.queue.version - age, 0)
        request = self.queue.put(queued(f"{producer}{len(self.put_requests)}", start))
        self.put_requests.append(request)
        if self.refuses:
            assert request.outcome is not None, "nothing waits where full is refused"
        return request

    @rule(target=gets, most=st.integers(1, 5), data=st.data())
    def get(self, most: int, data: st.DataObject) -> GetRequest:
        least = data.draw(st.integers(1, min(most, self.queue.capacity)))
        request = self.queue.get(most, least)
        self.get_requests.append(request)
        return request

    @rule(request=puts)
    def cancel_put(self, request: PutRequest) -> None:
        waited = request.outcome is None
        before = request.outcome
        self.queue.cancel(request)
        assert request.outcome is (PutOutcome.WITHDRAWN if waited else before)

    @rule(request=gets)
    def cancel_get(self, request: GetRequest) -> None:
        if id(request) in self.cancelled:
            return
        taken = request.outcome.groups if request.outcome else ()
        self.ever_given_back |= bool(taken)
        self.cancelled.add(id(request))
        waiting = any(each.outcome is None for each in self.get_requests if each is not request)
        self.queue.cancel(request)
        assert request.outcome == QueueBatch()
        if taken and not waiting:
            following = self.queue.get(len(taken), 1) if self.queue.statistics().size else None
            if following is not None:
                self.get_requests.append(following)
                front = names(following) or []
                fresh = [one.group_id for one in taken if not self.is_stale(one)]
                assert front[: len(fresh)] == fresh[: len(front)], "back at the front, in order"

    @rule(more=st.integers(0, 2))
    def advance(self, more: int) -> None:
        self.queue.advance(self.queue.version + more)

    @rule()
    def read_drops(self) -> None:
        drops = self.queue.drops_after(len(self.seen_drops))
        assert self.queue.drops_after(len(self.seen_drops)) == drops, "a lost answer comes again"
        assert [drop.number for drop in drops] == [
            len(self.seen_drops) + 1 + index for index in range(len(drops))
        ]
        assert all(drop.reason is DropReason.STALE for drop in drops)
        self.seen_drops += [drop.group_id for drop in drops]

    @precondition(lambda self: len(self.put_requests) > 5)
    @rule()
    def close(self) -> None:
        self.queue.close()
        assert all(request.outcome is not None for request in self.put_requests)
        assert all(request.outcome is not None for request in self.get_requests), "all are woken"

    def is_stale(self, one: QueuedGroup) -> bool:
        return self.bound is not None and self.queue.version - one.start_version > self.bound

    @invariant()
    def counts_add_up(self) -> None:
        counts = self.queue.statistics()
        assert counts.accepted == counts.got + counts.size + sum(counts.dropped.values())
        outcomes = Counter(each.outcome for each in self.put_requests)
        assert counts.accepted == outcomes[PutOutcome.ACCEPTED]
        assert counts.waiting_puts == outcomes[None]
        refused = {
            each.value: outcomes[each]
            for each in (PutOutcome.FULL, PutOutcome.STALE, PutOutcome.CLOSED)
            if outcomes[each]
        }
        assert counts.refused == refused
        got = [name for each in self.get_requests for name in names(each) or []]
        assert counts.got == len(got) == len(set(got)), "nobody gets what another has"

    @invariant()
    def nothing_waits_without_cause(self) -> None:
        counts = self.queue.statistics()
        if counts.waiting_puts:
            assert counts.size >= self.queue.capacity
            assert not self.queue.closed
        waiting = [each for each in self.get_requests if each.outcome is None]
        assert counts.waiting_gets == len(waiting)
        if waiting:
            assert counts.size < waiting[0].least
            assert not self.queue.closed
        for each in self.get_requests:
            if each.outcome is not None and each.outcome.ended:
                assert self.queue.closed, "no end marker before the end"
        if not self.ever_given_back:
            assert counts.size <= self.queue.capacity

    @invariant()
    def a_batch_has_the_size_asked_for(self) -> None:
        for each in self.get_requests:
            if each.outcome and id(each) not in self.cancelled:
                size = len(each.outcome.groups)
                assert size <= each.most
                assert size >= each.least or self.queue.closed

    @invariant()
    def producers_keep_their_order(self) -> None:
        if self.ever_given_back:
            return  # what is given back comes after what other consumers got meanwhile
        got = [name for each in self.get_requests for name in names(each) or []]
        for producer in "ab":
            numbers = [int(name[1:]) for name in got if name[0] == producer]
            assert numbers == sorted(numbers)

    def teardown(self) -> None:
        """At the end, everything that was accepted is got or known as dropped."""
        if not hasattr(self, "queue"):
            return
        self.queue.close()
        last = self.queue.get(1000, 1)
        self.get_requests.append(last)
        assert self.queue.get(1, 1).outcome == QueueBatch(ended=True)
        self.read_drops()
        got = [name for each in self.get_requests for name in names(each) or []]
        accepted = [
            each.group.group_id for each in self.put_requests if each.outcome is PutOutcome.ACCEPTED
        ]
        assert sorted([*got, *self.seen_drops]) == sorted(accepted)


TestAnyOrder = AnyOrder.TestCase


def test_a_put_waits_for_room_and_keeps_its_place() -> None:
    queue = TrajectoryQueue(1)
    requests = [queue.put(queued(name)) for name in "abc"]
    assert [each.outcome for each in requests] == [PutOutcome.ACCEPTED, None, None]
    assert names(queue.get(1)) == ["a"]
    assert [each.outcome for each in requests] == [PutOutcome.ACCEPTED] * 2 + [None]
    assert names(queue.get(2, 1)) == ["b"]
    assert names(queue.get(2, 1)) == ["c"]


def test_a_full_queue_refuses_if_it_is_told_to() -> None:
    queue = TrajectoryQueue(1, "refuse")
    assert [queue.put(queued(name)).outcome for name in "ab"] == [
        PutOutcome.ACCEPTED, PutOutcome.FULL,
    ]  # fmt: skip
    assert names(queue.get(2, 1)) == ["a"]


def test_what_is_too_old_is_refused_or_dropped_and_reported() -> None:
    queue = TrajectoryQueue(2, max_staleness=1)
    old, young, waits = (
        queue.put(queued("old")),
        queue.put(queued("young", 1)),
        queue.put(queued("w")),
    )
    queue.advance(2)
    assert (old.outcome, young.outcome) == (PutOutcome.ACCEPTED, PutOutcome.ACCEPTED)
    assert waits.outcome is PutOutcome.STALE, "a waiting producer is told at once"
    assert [(drop.group_id, drop.reason) for drop in queue.drops_after(0)] == [
        ("old", DropReason.STALE)
    ]
    assert queue.put(queued("late")).outcome is PutOutcome.STALE
    assert names(queue.get(2)) == ["young"]
    assert queue.statistics().refused == {"stale": 2}


def test_the_end_marker_comes_after_what_is_left() -> None:
    queue = TrajectoryQueue(4)
    for name in "abc":
        queue.put(queued(name))
    batch, rest, end = queue.get(2, 2), queue.get(2, 2), queue.get(1)
    queue.close()
    assert (names(batch), names(rest), names(end)) == (["a", "b"], ["c"], [])
    assert end.outcome == QueueBatch(ended=True)
    assert queue.put(queued("d")).outcome is PutOutcome.CLOSED


def test_the_groups_of_a_cancelled_get_are_the_next_ones() -> None:
    queue = TrajectoryQueue(4)
    for name in "abcd":
        queue.put(queued(name))
    first = queue.get(2)
    queue.cancel(first)
    assert names(queue.get(3)) == ["a", "b", "c"]


def test_a_group_is_in_the_queue_once() -> None:
    queue = TrajectoryQueue(1)
    queue.put(queued("a"))
    queue.put(queued("b"))
    for name in "ab":
        with pytest.raises(DuplicateGroup, match=name):
            queue.put(queued(name))


@pytest.mark.parametrize(("most", "least"), [(0, 0), (1, 2), (5, 3)])
def test_a_batch_that_the_queue_can_never_have_is_refused(most: int, least: int) -> None:
    with pytest.raises(ValueError, match="within the capacity 2"):
        TrajectoryQueue(2).get(most, least)

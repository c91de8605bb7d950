"""``judge_queue``: what a trajectory queue owes its clients, judged from a recorded history.

The judge is a pure function that knows what clients asked for and got. Calls take time on their
way, so it objects only to what is wrong for every time at which the queue may have run a call:
``surely`` in the names below says that. What was accepted and is not known at the end is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from rlconform.grpo.history_finding import HistoryFinding
from rlconform.grpo.queue.queue_history import OWNER, GetLife, PutLife, QueueHistory
from rlconform.grpo.queue.trajectory_queue import PutOutcome

GROUPS, ORDER, BOUNDS, ENDS = "queue_groups", "queue_order", "queue_bounds", "queue_ends"
#: The rules, each with what it holds.
QUEUE_RULES = {
    GROUPS: "a group that was accepted is got or reported as dropped, once; no other one is",
    ORDER: "groups are got in the order in which their producer put them",
    BOUNDS: "capacity, sizes of batches and the bound of staleness hold, and refusals have a cause",
    ENDS: "nobody waits for what is there, and the end marker comes last, to everybody",
}


def judge_queue(history: QueueHistory) -> list[HistoryFinding]:
    """Return what the queue did wrong, [] if nothing."""
    return [
        *_judge_groups(history),
        *_judge_order(history),
        *chain.from_iterable(_judge_batch(history, get) for get in history.gets),
        *_judge_capacity(history),
        *chain.from_iterable(_judge_refusal(history, put) for put in history.puts),
        *_judge_drops(history),
        *_judge_unanswered(history),
        *chain.from_iterable(_judge_end(history, get) for get in history.gets),
        *chain.from_iterable(_judge_waiting_put(history, put) for put in history.puts),
        *_judge_waiting_get(history),
    ]


def _judge_groups(history: QueueHistory) -> Iterator[HistoryFinding]:
    got = history.got()
    seen = Counter(chain((g for get in history.gets for g in get.groups), history.dropped))
    puts = {put.group: put for put in history.puts}
    for group in seen.keys() - puts.keys():
        wrong = f"expected groups that were put; got {group}"
        yield HistoryFinding(GROUPS, wrong, (got.get(group, group),))
    for group, put in puts.items():
        proof = tuple(get for get in history.gets if group in get.groups)[:9]
        if put.outcome is PutOutcome.ACCEPTED and not seen[group]:
            wrong = f"expected {group}, which was accepted, to be got or dropped; got neither"
            yield HistoryFinding(GROUPS, wrong, (put,))
        elif seen[group] > 1:
            wrong = f"expected {group} to be got or dropped once; got it {seen[group]} times"
            yield HistoryFinding(GROUPS, wrong, (put, *proof))
        elif seen[group] and put.outcome not in {None, PutOutcome.ACCEPTED}:
            wrong = f"expected {group}, which was refused, not to be got; got it"
            yield HistoryFinding(GROUPS, wrong, (put, *proof))


def _judge_order(history: QueueHistory) -> Iterator[HistoryFinding]:
    """Groups of one producer come to each consumer in their order.

    What one consumer gives back another one may get first, so then only a single one has an order.
    """
    consumers = sorted({get.consumer for get in history.gets})
    if history.gave_back and len({*consumers} - {OWNER}) > 1:
        return
    place = {put.group: (put.producer, index) for index, put in enumerate(history.puts)}
    for consumer in consumers:
        gets = [get for get in history.gets if get.consumer == consumer]
        groups = [(group, get) for get in gets for group in get.groups if group in place]
        for producer in sorted({put.producer for put in history.puts}):
            of_producer = [one for one in groups if place[one[0]][0] == producer]
            for (before, first), (after, second) in pairwise(of_producer):
                if place[before] > place[after]:
                    wrong = f"expected {after} before {before}, which was put later; got it after"
                    yield HistoryFinding(ORDER, wrong, (first, second))
                    return


def _judge_batch(history: QueueHistory, get: GetLife) -> Iterator[HistoryFinding]:
    if get.ended is None or get.cancelled or get.end_marker:
        return
    closing = history.closed is not None and history.closed <= get.ended
    if len(get.groups) > get.most or (len(get.groups) < get.least and not closing):
        wrong = f"expected {get.least} to {get.most} groups; got {len(get.groups)}"
        yield HistoryFinding(BOUNDS, wrong, (get,))
    puts = {put.group: put for put in history.puts}
    for group in get.groups:
        if group in puts and _is_old(history, puts[group], get.version):
            wrong = (
                f"expected groups for version {get.version} to be at most "
                f"{history.limits.max_staleness} versions old; got {group} of version "
                f"{puts[group].start}"
            )
            yield HistoryFinding(BOUNDS, wrong, (puts[group], get))


def _judge_capacity(history: QueueHistory) -> Iterator[HistoryFinding]:
    """No more groups than agreed are surely in the queue."""
    if history.gave_back:
        return  # what is given back may exceed the capacity
    for put in history.puts:
        if put.ended is None:
            continue
        held = list(_surely_held(history, put.ended))
        if len(held) > history.limits.capacity:
            wrong = (
                f"expected at most {history.limits.capacity} groups in the queue; got {len(held)}"
            )
            yield HistoryFinding(BOUNDS, wrong, tuple(held[:10]))
            return


def _judge_refusal(history: QueueHistory, put: PutLife) -> Iterator[HistoryFinding]:
    """Refusals have a cause: no room, too old, or closed."""
    if put.ended is None:
        return
    closed = history.closed is not None and history.closed <= put.ended
    limits, name = history.limits, f"the put of {put.group}"
    match put.outcome:
        case PutOutcome.FULL if limits.on_full == "wait":
            wrong = f"expected {name} to wait while the queue is full; got it refused"
        case PutOutcome.FULL if (
            len(_perhaps_held(history, put, put.asked, put.ended)) < limits.capacity
        ):
            wrong = f"expected {name} to be accepted, as there is room; got it refused as full"
        case PutOutcome.STALE if not _may_be_old(history, put, put.ended):
            wrong = f"expected {name} to be accepted, as it is not too old; got it refused as stale"
        case PutOutcome.CLOSED if not closed:
            wrong = f"expected {name} to be accepted, as nobody closes; got it refused as closed"
        case PutOutcome.WITHDRAWN:
            wrong = f"expected an answer to {name}, which nobody cancelled; got it withdrawn"
        case PutOutcome.ACCEPTED if history.closed and put.asked > _is_closed_by(history):
            wrong = f"expected {name} to be refused after the end; got it accepted"
            yield HistoryFinding(ENDS, wrong, (put,))
            return
        case _:
            return
    yield HistoryFinding(BOUNDS, wrong, (put,))


def _judge_drops(history: QueueHistory) -> Iterator[HistoryFinding]:
    puts = {put.group: put for put in history.puts}
    for group in history.dropped:
        if group in puts and not _may_be_old(history, puts[group], float("inf")):
            wrong = f"expected {group} to be kept, as it is never too old; got it dropped"
            yield HistoryFinding(BOUNDS, wrong, (puts[group],))


def _judge_unanswered(history: QueueHistory) -> Iterator[HistoryFinding]:
    calls: Iterable[PutLife | GetLife] = chain(history.puts, history.gets)
    for call in calls:
        if call.ended is None:
            kind = f"put of {call.group}" if isinstance(call, PutLife) else "get"
            wrong = f"expected an answer to the {kind}; got none, though the queue is closed"
            yield HistoryFinding(ENDS, wrong, (call,))


def _judge_end(history: QueueHistory, get: GetLife) -> Iterator[HistoryFinding]:
    """The end marker comes after the end, with no groups, and after all of them."""
    if get.ended is None or not get.end_marker:
        return
    if history.closed is None or history.closed > get.ended:
        yield HistoryFinding(ENDS, "expected no end marker before the end; got one", (get,))
    if history.gave_back:
        return  # what is given back may come after another client's end marker
    later = [one for one in history.gets if one.groups and one.asked > get.ended]
    if later:
        wrong = f"expected the end marker after all groups; got it before {later[0].groups}"
        yield HistoryFinding(ENDS, wrong, (get, later[0]))


def _judge_waiting_put(history: QueueHistory, put: PutLife) -> Iterator[HistoryFinding]:
    """A put doesn't wait for the end while there is room for it."""
    if put.outcome is not PutOutcome.CLOSED or history.closed is None:
        return
    settled = history.closed - history.limits.slack_s
    if put.asked >= settled - history.limits.slack_s:
        return  # it may have come when others had taken the room
    held = _perhaps_held(history, put, settled, history.closed)
    if len(held) < history.limits.capacity:
        wrong = (
            f"expected the put of {put.group} to get room, with {len(held)} groups at most before "
            "it; got it waiting until the end"
        )
        yield HistoryFinding(ENDS, wrong, (put, *held[:9]))


def _judge_waiting_get(history: QueueHistory) -> Iterator[HistoryFinding]:
    """No get waits for the end while there are enough groups for each of those that wait."""
    if history.closed is None or history.gave_back:
        return
    settled = history.closed - history.limits.slack_s
    waiting = [
        get
        for get in history.gets
        if get.asked < settled - history.limits.slack_s
        and (get.ended is None or get.ended > history.closed)
    ]
    there = list(_surely_held(history, settled))
    if waiting and len(there) >= max(get.least for get in waiting):
        wrong = (
            f"expected a get of {waiting[0].least} groups to be served, with {len(there)} there; "
            "got it waiting until the end"
        )
        yield HistoryFinding(ENDS, wrong, (waiting[0], *there[:9]))


def _is_closed_by(history: QueueHistory) -> float:
    """Return the time from which on the queue is surely closed."""
    assert history.closed is not None  # the caller looks
    return history.closed + history.limits.slack_s


def _surely_held(history: QueueHistory, moment: float) -> Iterator[PutLife]:
    """Groups that are accepted by then, and that a get is served with later."""
    got = history.got()
    for put in history.puts:
        if put.outcome is not PutOutcome.ACCEPTED or put.ended is None or put.ended > moment:
            continue
        get = got.get(put.group)
        if get is not None and get.ended is not None:
            served = max(get.asked, get.ended - history.limits.slack_s)  # or later
            if served > moment:
                yield put


def _perhaps_held(history: QueueHistory, put: PutLife, since: float, until: float) -> list[PutLife]:
    """Return the other groups that may have taken room at some moment of this time."""
    got = history.got()
    return [
        one
        for one in history.puts
        if one is not put
        and one.asked <= until
        and one.outcome in {None, PutOutcome.ACCEPTED}
        and not ((get := got.get(one.group)) and get.ended is not None and get.ended < since)
    ]


def _is_old(history: QueueHistory, put: PutLife, version: int) -> bool:
    bound = history.limits.max_staleness
    return bound is not None and version - put.start > bound


def _may_be_old(history: QueueHistory, put: PutLife, until: float) -> bool:
    return _is_old(history, put, history.newest_version(until))

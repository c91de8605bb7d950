"""``History``: what must, and what may, have happened to a row by a time, given all calls.

A call takes effect at one moment between its start and its end. Where two calls overlap, either may
have taken effect first. So every checker asks one of two questions about the time from a to b:

    must have happened     a write or clear lies wholly inside (a, b)     IntervalIndex.inside
    may have happened      a write or clear overlaps [a, b]               IntervalIndex.touching

A put or clear that failed or never returned may have taken effect at any time after its start, or
never. Its interval has no end, so it proves nothing and permits anything after its start.

A row exists from the put that creates it to its clear. A reused id names several rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from operator import attrgetter
from typing import Any

from rlconform.certify.concurrency.operation import Operation, Value


@dataclass(frozen=True, slots=True)
class Interval:
    """The earliest and the latest time, in seconds, at which an operation took effect."""

    start: float
    end: float
    operation: Operation


_START, _END = attrgetter("start"), attrgetter("end")


class IntervalIndex:
    """Intervals of one kind, with queries in O(log n)."""

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self.by_start = sorted(intervals, key=_START)
        if len(self.by_start) == 1:  # most rows are put once
            (only,) = self._by_end = self.by_start
            self._starts, self._ends = [only.start], [only.end]
            self._ends_first_from = self._ends_last_to = self._starts_last_to = self.by_start
            return
        self._starts = [interval.start for interval in self.by_start]
        self._by_end = sorted(self.by_start, key=_END)
        self._ends = [interval.end for interval in self._by_end]
        ends_first, ends_last = partial(min, key=_END), partial(max, key=_END)
        self._ends_first_from = list(accumulate(reversed(self.by_start), ends_first))[::-1]
        self._ends_last_to = list(accumulate(self.by_start, ends_last))
        self._starts_last_to = list(accumulate(self._by_end, partial(max, key=_START)))

    def __bool__(self) -> bool:
        return bool(self.by_start)

    def __iter__(self) -> Iterator[Interval]:
        return iter(self.by_start)

    def inside(self, after: float, before: float) -> Interval | None:
        """Return the interval that ends first, of those within (``after``, ``before``)."""
        index = bisect_right(self._starts, after)
        found = self._ends_first_from[index] if index < len(self.by_start) else None
        return found if found is not None and found.end < before else None

    def touching(self, start: float, end: float) -> int:
        """Count the intervals that overlap [``start``, ``end``], so may take effect then."""
        return bisect_right(self._starts, end) - bisect_left(self._ends, start)

    def begun(self, by: float) -> Interval | None:
        """Return the interval that ends last, of those that started by ``by``."""
        index = bisect_right(self._starts, by)
        return self._ends_last_to[index - 1] if index else None

    def over(self, before: float) -> Interval | None:
        """Return the interval that started last, of those that ended before ``before``."""
        index = bisect_left(self._ends, before)
        return self._starts_last_to[index - 1] if index else None

    def covering(self, start: float, end: float) -> Interval | None:
        """Return an interval that started before ``start`` and ended after ``end``, or None."""
        index = bisect_left(self._starts, start)
        found = self._ends_last_to[index - 1] if index else None
        return found if found is not None and found.end > end else None


class Intervals(dict[Any, IntervalIndex]):
    """An index of intervals for each key; a missing key has an empty index."""

    def __missing__(self, _: Any) -> IntervalIndex:
        return _NONE


_NONE = IntervalIndex()


#: The kind and name of a row's column: a field, or the key of a tag.
Column = tuple[str, str]
FIELD, TAG = "field", "tag"


class History:
    """The operations of one run, indexed by row; building the indexes takes O(n log n)."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations: Sequence[Operation] = sorted(operations, key=lambda op: op.start)

    def of(self, kind: str) -> list[Operation]:
        """Return the operations of one kind, ordered by start."""
        return [op for op in self.operations if op.op == kind]

    @cached_property
    def writes(self) -> Intervals:
        """The puts that wrote a column, by row and column."""
        return _by_key(self.of("put"), _UNTIL, _columns)

    @cached_property
    def puts(self) -> Intervals:
        """The puts that wrote any field, by row."""
        return _by_key((op for op in self.of("put") if op.fields), _UNTIL)

    @cached_property
    def clears(self) -> Intervals:
        """The clears, by row."""
        return _by_key(self.of("clear"), _UNTIL)

    def contended(self, call: Operation) -> bool:
        """Whether another put or clear of one of the call's rows was under way during the call."""
        return any(
            self._writers[sample_id].touching(call.start, call.latest) > 1 for sample_id in call.ids
        )

    @cached_property
    def _writers(self) -> Intervals:
        """The puts and clears of each row, each from its start to its end for the caller."""
        return _by_key((*self.of("put"), *self.of("clear")), attrgetter("latest"))

    @cached_property
    def deliveries(self) -> dict[tuple[str, Any], list[Operation]]:
        """The claims that returned a row, by task and row, ordered by end.

        A claim that returned the row twice is listed twice.
        """
        found: dict[tuple[str, Any], list[Operation]] = defaultdict(list)
        for op in sorted(self.of("claim"), key=lambda op: op.latest):
            for sample_id in op.ids if op.ok else ():
                found[op.task, sample_id].append(op)
        return found

    @cached_property
    def _versions(self) -> dict[tuple[Any, str, Value], Interval]:
        return {
            (sample_id, name, put.operation.version): put
            for (sample_id, (kind, name)), puts in self.writes.items()
            for put in puts
            if kind == FIELD and put.operation.version is not None
        }

    def put_of(self, sample_id: Any, field: str, value: Value) -> Interval | None:
        """Return the put that wrote this value of the row's field, or None."""
        return self._versions.get((sample_id, field, value))

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks for which rows were claimed."""
        return sorted({task for task, _ in self.deliveries})

    def surely_there(self, sample_id: Any, column: Column, op: Operation) -> Interval | None:
        """Return a put that proves that the row has the column throughout the operation, or None.

        The put returned before the operation began, and no clear up to its end can have followed.
        """
        put = self.writes[sample_id, column].over(op.start)
        if put is None or self.clears[sample_id].touching(put.start, op.latest):
            return None
        return put

    def all_surely_there(self, ids: Iterable[Any], op: Operation) -> Interval | None:
        """Return the last put of those that prove that all rows have the operation's fields."""
        columns = [(FIELD, field) for field in op.fields]
        proofs = [self.surely_there(i, column, op) for i in ids for column in columns]
        return None if None in proofs else max(filter(None, proofs), key=_END, default=None)


_UNTIL = attrgetter("until")


def _by_key(
    operations: Iterable[Operation],
    end: Callable[[Operation], float],
    keys: Callable[[Operation], Iterable[Any]] = attrgetter("ids"),
) -> Intervals:
    found: dict[Any, list[Interval]] = defaultdict(list)
    for op in operations:
        for key in keys(op):
            found[key].append(Interval(op.start, end(op), op))
    return Intervals((key, IntervalIndex(intervals)) for key, intervals in found.items())


def _columns(op: Operation) -> Iterator[tuple[Any, Column]]:
    """Yield each row and column that a put wrote."""
    for index, sample_id in enumerate(op.ids):
        yield from ((sample_id, (FIELD, field)) for field in op.fields)
        yield from ((sample_id, (TAG, key)) for key in (op.tags[index] if op.tags else ()))

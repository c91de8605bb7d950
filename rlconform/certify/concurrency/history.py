"""What a history proves of a row at a time, and what it leaves open.

A call takes effect at one moment between its start and its end; where two calls overlap, either may
be first. Hence the two questions that all verdicts are made of:

    surely over    a write or clear lies *wholly* inside (a, b)      Spans.inside
    maybe          one *touches* [a, b]                              Spans.touching

A put or clear that failed, or never came back, may take effect at any time after its start, or
never: its span has no end, so it proves nothing and excuses everything after its start.

A *life* of a row begins with the put that makes it and ends with a clear. A reused id has several.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from rlconform.certify.concurrency.events import Operation, Value


@dataclass(frozen=True, slots=True)
class Interval:
    """When a call took effect at the earliest and at the latest, s."""

    start: float
    end: float
    event: Operation


class IntervalIndex:
    """Spans of one kind, for questions about them in O(log n)."""

    def __init__(self, spans: Iterable[Interval] = ()) -> None:
        self.by_start = sorted(spans, key=lambda span: span.start)
        self._starts = [span.start for span in self.by_start]
        self._by_end = sorted(self.by_start, key=lambda span: span.end)
        self._ends = [span.end for span in self._by_end]
        backwards = list(accumulate(reversed(self.by_start), _first_over))
        self._first_over_from = backwards[::-1]
        self._last_over_to = list(accumulate(self.by_start, _last_over))
        self._last_begun_to = list(accumulate(self._by_end, _last_begun))

    def __bool__(self) -> bool:
        return bool(self.by_start)

    def __iter__(self) -> Iterator[Interval]:
        return iter(self.by_start)

    def inside(self, after: float, before: float) -> Interval | None:
        """One that began after ``after`` and was over before ``before``: the first to be over."""
        index = bisect_right(self._starts, after)
        found = self._first_over_from[index] if index < len(self.by_start) else None
        return found if found is not None and found.end < before else None

    def touching(self, start: float, end: float) -> int:
        """How many may have taken effect between ``start`` and ``end``, both included."""
        return bisect_right(self._starts, end) - bisect_left(self._ends, start)

    def begun(self, by: float) -> Interval | None:
        """Of those begun by ``by``, the one that may have taken effect last."""
        index = bisect_right(self._starts, by)
        return self._last_over_to[index - 1] if index else None

    def over(self, before: float) -> Interval | None:
        """Of those over before ``before``, the one that began last."""
        index = bisect_left(self._ends, before)
        return self._last_begun_to[index - 1] if index else None

    def covering(self, start: float, end: float) -> Interval | None:
        """One that began before ``start`` and ended after ``end``."""
        index = bisect_left(self._starts, start)
        found = self._last_over_to[index - 1] if index else None
        return found if found is not None and found.end > end else None


def _first_over(one: Interval, other: Interval) -> Interval:
    return min(one, other, key=lambda span: span.end)


def _last_over(one: Interval, other: Interval) -> Interval:
    return max(one, other, key=lambda span: span.end)


def _last_begun(one: Interval, other: Interval) -> Interval:
    return max(one, other, key=lambda span: span.start)


#: A field, or a tag's key: tags are columns of another kind.
Column = tuple[str, str]
FIELD, TAG = "field", "tag"


class History:
    """The events of one run, by the rows that they concern. Costs O(n log n)."""

    def __init__(self, events: Iterable[Operation]) -> None:
        self.events: Sequence[Operation] = sorted(events, key=lambda event: event.start)

    def of(self, op: str) -> list[Operation]:
        """The events of one kind, by their start."""
        return [event for event in self.events if event.op == op]

    @cached_property
    def writes(self) -> dict[tuple[Any, Column], IntervalIndex]:
        """The puts that wrote a column of a row."""
        found: dict[tuple[Any, Column], list[Interval]] = defaultdict(list)
        for event in self.of("put"):
            for index, sample_id in enumerate(event.ids):
                for column in _columns(event, index):
                    found[sample_id, column].append(Interval(event.start, event.until, event))
        return {key: IntervalIndex(spans) for key, spans in found.items()}

    @cached_property
    def puts(self) -> dict[Any, IntervalIndex]:
        """The puts that wrote any field, by row."""
        return self._spans_of("put", lambda event: bool(event.fields))

    @cached_property
    def clears(self) -> dict[Any, IntervalIndex]:
        """The clears, by row."""
        return self._spans_of("clear", lambda _: True)

    def _spans_of(self, op: str, wanted: Callable[[Operation], bool]) -> dict[Any, IntervalIndex]:
        found: dict[Any, list[Interval]] = defaultdict(list)
        for event in self.of(op):
            for sample_id in event.ids if wanted(event) else ():
                found[sample_id].append(Interval(event.start, event.until, event))
        return {key: IntervalIndex(spans) for key, spans in found.items()}

    def puts_of(self, sample_id: Any) -> IntervalIndex:
        """The puts of the row that wrote any field of it."""
        return self.puts.get(sample_id, _NONE)

    def clears_of(self, sample_id: Any) -> IntervalIndex:
        """The clears of the row."""
        return self.clears.get(sample_id, _NONE)

    def contended(self, call: Operation) -> bool:
        """Whether another put or clear of one of its rows was under way during the call."""
        return any(
            self._writers[sample_id].touching(call.start, call.latest) > 1 for sample_id in call.ids
        )

    @cached_property
    def _writers(self) -> dict[Any, IntervalIndex]:
        """The puts and clears of each row, by when they were under way for their callers."""
        found: dict[Any, list[Interval]] = defaultdict(list)
        for event in self.events:
            if event.op in {"put", "clear"}:
                for sample_id in event.ids:
                    found[sample_id].append(Interval(event.start, event.latest, event))
        return {sample_id: IntervalIndex(spans) for sample_id, spans in found.items()}

    @cached_property
    def deliveries(self) -> dict[tuple[str, Any], list[Operation]]:
        """The claims that handed a row to a task, by their end; a row twice in one counts twice."""
        found: dict[tuple[str, Any], list[Operation]] = defaultdict(list)
        for event in sorted(self.of("claim"), key=lambda event: event.latest):
            for sample_id in event.ids if event.ok else ():
                found[event.task, sample_id].append(event)
        return found

    def wrote(self, sample_id: Any, column: Column) -> IntervalIndex:
        """The puts that wrote this column of this row."""
        return self.writes.get((sample_id, column), _NONE)

    @cached_property
    def _versions(self) -> dict[tuple[Any, str, Value], Interval]:
        return {
            (sample_id, name, span.event.version): span
            for (sample_id, (kind, name)), spans in self.writes.items()
            for span in spans
            if kind == FIELD and span.event.version is not None
        }

    def put_of(self, sample_id: Any, field: str, value: Value) -> Interval | None:
        """The put that wrote this value of the row's field, if one did."""
        return self._versions.get((sample_id, field, value))

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks that were handed rows."""
        return sorted({task for task, _ in self.deliveries})

    def cleared_between(self, sample_id: Any, after: float, before: float) -> Interval | None:
        """A clear of the row that lies wholly between the two times."""
        return self.clears_of(sample_id).inside(after, before)

    def surely_there(
        self, sample_id: Any, column: Column, start: float, end: float
    ) -> Interval | None:
        """The put that proves the row's column to be there from ``start`` to ``end``, if any does.

        It was acknowledged before ``start``, and no clear can have come after it by ``end``.
        """
        put = self.wrote(sample_id, column).over(start)
        if put is None or self.clears_of(sample_id).touching(put.start, end):
            return None
        return put

    def possible(self, sample_id: Any, column: Column, event: Operation) -> bool:
        """Whether the row's column may have been there at some moment of the event."""
        put = self.wrote(sample_id, column).begun(event.latest)
        return put is not None and not self.cleared_between(sample_id, put.end, event.start)


_NONE = IntervalIndex()


def _columns(event: Operation, index: int) -> list[Column]:
    named = [(FIELD, field) for field in event.fields]
    return named + [(TAG, key) for key in (event.tags[index] if event.tags else ())]

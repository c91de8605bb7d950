"""``Overview``: what happened in a run, in bounded memory: fates and spans of groups."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.events.schema import Dropped, PromptDispatched, Record, Trained

#: Spans that are kept: of the first groups that ended, and of the last.
_FIRST_SPANS, _LAST_SPANS = 200, 600


@dataclass(frozen=True)
class GroupSpan:
    """When a group was where, in nanoseconds of the wall time; None where the log doesn't say."""

    group_id: str
    dispatched: int
    committed: int | None
    selected: int | None
    ended: int
    fate: str  # trained, open, or the cause of the drop


@dataclass
class Overview:
    """Collects what the report shows; rules don't read it."""

    ledger: Ledger
    fates: Counter[str] = field(default_factory=Counter)
    first_spans: list[GroupSpan] = field(default_factory=list)
    last_spans: deque[GroupSpan] = field(default_factory=lambda: deque(maxlen=_LAST_SPANS))

    def on_prompt_dispatched(self, _: PromptDispatched, __: Record, ___: GroupLife | None) -> None:
        """Count a dispatch."""
        self.fates["dispatched"] += 1

    def on_trained(self, _: Trained, record: Record, group: GroupLife | None) -> None:
        """Count a group with the first of its rows."""
        if group is None or group.trained:
            return
        self.fates["trained"] += 1
        self._add_span(group, record.wall_ns, "trained")

    def on_dropped(self, event: Dropped, record: Record, group: GroupLife | None) -> None:
        """Count a drop by its cause."""
        if group is not None:
            self.fates[event.cause.value] += 1
            self._add_span(group, record.wall_ns, event.cause.value)

    def _add_span(self, group: GroupLife, ended: int, fate: str) -> None:
        span = span_of(group, ended, fate)
        if len(self.first_spans) < _FIRST_SPANS:
            self.first_spans.append(span)
        else:
            self.last_spans.append(span)

    def spans(self) -> list[GroupSpan]:
        """Return the kept spans, and those of groups that are still open."""
        still_open = [
            span_of(group, group.last.wall_ns, "open")
            for group in list(self.ledger.groups.values())[:_LAST_SPANS]
        ]
        return [*self.first_spans, *self.last_spans, *still_open]


def span_of(group: GroupLife, ended: int, fate: str) -> GroupSpan:
    """Return the span of a group that ends now."""
    return GroupSpan(
        group.group_id,
        group.first.wall_ns,
        group.committed.wall_ns if group.committed else None,
        group.selected.wall_ns if group.selected else None,
        ended,
        fate,
    )

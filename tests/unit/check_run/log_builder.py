"""``LogBuilder``: writes records of several processes on a simulated clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rlconform.events.schema import EventSource, LogClosed, Record, RunEvent

DRIVER = EventSource("trainer", 0, "host-a", 100)
REWARD = EventSource("reward", 0, "host-a", 300)
START_NS = 1_000_000_000_000_000


def engine_source(number: int) -> EventSource:
    """The process of an engine."""
    return EventSource("rollout", number, "host-a", 200 + number)


class Line(NamedTuple):
    """A record without the numbers that its place gives it."""

    source: EventSource
    event: RunEvent
    wall_ns: int


def records_of_lines(lines: Iterable[Line]) -> list[Record]:
    """Number the lines of each process, and give all of them a growing clock."""
    numbers: Counter[EventSource] = Counter()
    records, clock = [], 0
    for source, event, wall_ns in lines:
        clock = max(clock + 1, wall_ns // 1000)
        records.append(
            Record(
                run="r1", seq=numbers[source], clock=clock, mono_ns=wall_ns, wall_ns=wall_ns,
                source=source, event=event,
            )
        )  # fmt: skip
        numbers[source] += 1
    return records


def lines_of(records: Iterable[Record]) -> list[Line]:
    """The lines of records, to edit them."""
    return [Line(record.source, record.event, record.wall_ns) for record in records]


class LogBuilder:
    """Collects lines; each comes a millisecond after the one before, unless time passes."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.lines: list[Line] = []

    def write(self, event: RunEvent, source: EventSource = DRIVER) -> None:
        """Write an event a millisecond later."""
        self.now_ns += 1_000_000
        self.lines.append(Line(source, event, self.now_ns))

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += int(seconds * 1e9)

    @property
    def records(self) -> list[Record]:
        """The records so far, in causal order."""
        return records_of_lines(self.lines)


def write_files(records: Sequence[Record], folder: Path, closed: bool = True) -> list[Path]:
    """Write one file per process, each ended by ``log_closed``."""
    by_source: dict[EventSource, list[Record]] = {}
    for record in records:
        by_source.setdefault(record.source, []).append(record)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for source, own in by_source.items():
        if closed and not isinstance(own[-1].event, LogClosed):
            last = own[-1]
            own.append(
                msgspec.structs.replace(
                    last, seq=last.seq + 1, clock=last.clock + 1, event=LogClosed()
                )
            )
        path = folder / f"events-{source.role}-{source.pid}-{source.incarnation}.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in own))
        paths.append(path)
    return paths

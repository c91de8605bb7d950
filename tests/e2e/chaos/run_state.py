"""``RunState``: what the event log of a running run says at this moment.

files of events ── LogTail.poll ──▶ new records ──▶ RunState.observe
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from rlconform.events.schema import (
    Dropped,
    EventSource,
    Record,
    RolloutAborted,
    RolloutFailed,
    RolloutFinished,
    RolloutStarted,
    ScoringFinished,
    ScoringStarted,
    Selected,
    Trained,
)

_DECODER = msgspec.json.Decoder(Record)


class LogTail:
    """Reads what the files of events have got since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}  # bytes of each file

    def poll(self) -> list[Record]:
        """Return the new records, file by file."""
        records = []
        for path in sorted(self._folder.glob("events-*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole) + len(newline)
            records += [_DECODER.decode(line) for line in whole.splitlines()]
        return records


class RunState:
    """What is open and what is done; records of different files come in any order."""

    def __init__(self) -> None:
        self.sources: dict[tuple[str, int], EventSource] = {}  # by role and rank
        self.open_rows: dict[int, set[tuple[str, int]]] = {}  # being generated, by pid
        self.scoring: set[int] = set()  # pids of the reward workers that have a batch
        self.selected: set[str] = set()  # groups that a step has taken and not trained on
        self.steps = 0

    def observe(self, record: Record) -> None:
        """Take note of one record."""
        event, source = record.event, record.source
        self.sources.setdefault((source.role, source.rank), source)
        match event:
            case RolloutStarted():
                self.open_rows.setdefault(source.pid, set()).add((event.group_id, event.row))
            case RolloutFinished() | RolloutFailed() | RolloutAborted():
                self.open_rows.setdefault(source.pid, set()).discard((event.group_id, event.row))
            case ScoringStarted():
                self.scoring.add(source.pid)
            case ScoringFinished():
                self.scoring.discard(source.pid)
            case Selected():
                self.selected.add(event.group_id)
            case Trained():
                self.selected.discard(event.group_id)
                self.steps = max(self.steps, event.step)
            case Dropped():
                self.selected.discard(event.group_id)

"""``LogFile``: one file of events, read in pieces, with everything that is wrong with it noted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import msgspec

from rlconform.events.schema import SCHEMA_VERSION, EventSource, LogClosed, Record

_DECODER = msgspec.json.Decoder(Record)
_SEQ = attrgetter("seq")
_CLOCK = attrgetter("clock")
#: Defects of one file that are listed; all are counted.
MOST_DEFECTS = 20
#: Bytes of a line; a record has some hundred.
LONGEST_LINE = 16 << 20


class DefectKind(Enum):
    """What can be wrong with a log; each leaves open what the log doesn't show."""

    TORN_LINE = "torn_line"  # the file ends within a line
    NOT_CLOSED = "not_closed"  # the file does not end with log_closed
    UNREADABLE = "unreadable"  # a line is no record of the schema
    UNKNOWN_VERSION = "unknown_version"  # a line has another version of the schema
    UNKNOWN_EVENT = "unknown_event"  # a line has a type that the schema does not have
    GAP = "gap"  # numbers of lines are missing
    REPEATED = "repeated"  # a number occurs again: lines of several processes, or copied ones
    CLOCK = "clock"  # the clock does not grow
    EVENTS_LOST = "events_lost"  # the writer says that it could not write some
    OTHER_RUN = "other_run"  # a file belongs to another run


class LogDefect(NamedTuple):
    """Something that is wrong with a file; ``line`` counts from 1, and is 0 for the whole file."""

    kind: DefectKind
    path: Path
    line: int
    message: str


@dataclass
class LogFileInfo:
    """What was read of a file so far; ``source`` is None before its first record."""

    path: Path
    records: int = 0
    lines: int = 0
    run: str | None = None
    source: EventSource | None = None
    closed: bool = False
    torn: bool = False


class LogFile:
    """Reads a file piece by piece; ``note`` takes its defects."""

    def __init__(self, path: Path, piece_bytes: int, note: Callable[[LogDefect], None]) -> None:
        self.info = LogFileInfo(path)
        self.ended = False
        self._piece_bytes = piece_bytes
        self._note = note
        self._noted = 0
        self._offset = 0
        self._rest = b""
        self._in_long_line = False
        self._next_seq = 0
        self._clock = -1

    def next_records(self) -> list[Record]:
        """Return the records of the next piece that has any; an empty list at the end of the file.

        Raises:
            OSError: The file can't be read.
        """
        records: list[Record] = []
        while not records and not self.ended:
            with self.info.path.open("rb") as file:  # thousands of files are never open at once
                file.seek(self._offset)
                piece = file.read(self._piece_bytes)
            self._offset += len(piece)
            if len(piece) < self._piece_bytes:
                self.ended = True
            whole, newline, self._rest = self._without_long_lines(piece).rpartition(b"\n")
            if newline:
                records = self._decode(whole)
            if self.ended:
                self._end()
        return records

    def _without_long_lines(self, piece: bytes) -> bytes:
        """Return what is not yet decoded; a line that is too long is noted and skipped."""
        data = self._rest + piece
        if self._in_long_line:
            _, newline, data = data.partition(b"\n")
            self._in_long_line = not newline
            self.info.lines += len(newline)
        begun = data.rpartition(b"\n")[2]
        if len(begun) > LONGEST_LINE:
            number = self.info.lines + data.count(b"\n") + 1
            why = f"the line is longer than {LONGEST_LINE >> 20} MiB"
            self.note(DefectKind.UNREADABLE, why, line=number)
            self._in_long_line = True
            data = data[: len(data) - len(begun)]
        return data

    def _decode(self, piece: bytes) -> list[Record]:
        lines = piece.count(b"\n") + 1
        try:
            records = _DECODER.decode_lines(piece)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            records = self._decode_one_by_one(piece)
        self.info.lines += lines
        if records:
            self._check(records)
            self.info.records += len(records)
        return records

    def _decode_one_by_one(self, piece: bytes) -> list[Record]:
        records = []
        for number, line in enumerate(piece.split(b"\n"), self.info.lines + 1):
            try:
                if line.strip():
                    records.append(_DECODER.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                self.note(*_why_unreadable(line, str(error)), line=number)
        return records

    def _check(self, records: list[Record]) -> None:
        """Check numbers and clocks: all at once, and one by one only if something is wrong."""
        seqs, clocks = list(map(_SEQ, records)), list(map(_CLOCK, records))
        if seqs != list(range(self._next_seq, self._next_seq + len(records))):
            self._note_gaps(seqs)
        if any(later <= earlier for earlier, later in pairwise((self._clock, *clocks))):
            self.note(DefectKind.CLOCK, f"the clock does not grow near seq {seqs[0]}")
            records.sort(key=_SEQ)
        self._next_seq, self._clock = seqs[-1] + 1, max(self._clock, *clocks[-1:])
        first, last = records[0], records[-1]
        if self.info.source is None:
            self.info.run, self.info.source = first.run, first.source
        if not (self.info.source == first.source == last.source):
            self.note(DefectKind.REPEATED, "the file has the lines of several processes")
        if not (self.info.run == first.run == last.run):
            self.note(DefectKind.OTHER_RUN, f"the file has the lines of run {last.run!r} too")
        self.info.closed = isinstance(last.event, LogClosed)
        if isinstance(last.event, LogClosed) and last.event.lost:
            said = f"its writer could not write {last.event.lost} events: {last.event.last_error}"
            self.note(DefectKind.EVENTS_LOST, said)

    def _note_gaps(self, seqs: list[int]) -> None:
        expected = self._next_seq
        for seq in seqs:
            if seq > expected:
                missing = (
                    f"seq {expected}" if seq == expected + 1 else f"seq {expected} to {seq - 1}"
                )
                self.note(DefectKind.GAP, f"{missing} is missing")
            elif seq < expected:
                self.note(DefectKind.REPEATED, f"seq {seq} comes after seq {expected - 1}")
            expected = seq + 1

    def _end(self) -> None:
        if self._rest.strip():
            self.info.torn = True
            self.note(DefectKind.TORN_LINE, "the file ends within a line", self.info.lines + 1)
        if self.info.records and not self.info.closed:
            self.note(DefectKind.NOT_CLOSED, "the file does not end with log_closed")

    def note(self, kind: DefectKind, message: str, line: int = 0) -> None:
        """Note a defect of this file; of very many, the first ones."""
        self._noted += 1
        if self._noted <= MOST_DEFECTS or kind in {DefectKind.TORN_LINE, DefectKind.NOT_CLOSED}:
            self._note(LogDefect(kind, self.info.path, line, message))


def pieces_of_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; one that is too long comes in pieces, which are no records.

    Raises:
        OSError: The file can't be read.
    """
    with path.open("rb") as file:
        while piece := file.readline(LONGEST_LINE):
            yield piece


def _why_unreadable(line: bytes, error: str) -> tuple[DefectKind, str]:
    version = re.search(rb'"schema":\s*(\d+)', line)
    if version and int(version[1]) != SCHEMA_VERSION:
        return DefectKind.UNKNOWN_VERSION, (
            f"expected version {SCHEMA_VERSION} of the schema; got {int(version[1])}"
        )
    if "Invalid value" in error and "$.event.type" in error:
        return DefectKind.UNKNOWN_EVENT, error
    return DefectKind.UNREADABLE, error

"""Finds what an earlier part of a run has left in its folder, for the part that goes on."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from rlconform.events.log_file import LONGEST_LINE
from rlconform.events.schema import EventSource, LogClosed, Record

_DECODER = msgspec.json.Decoder(Record)
_TAIL_BYTES = 1 << 16


def left_over(folder: Path) -> tuple[str | None, list[EventSource]]:
    """Return the run whose files are in the folder, and the processes that didn't close theirs.

    The run is None if there is no file. A file without a readable line is left out.
    """
    run, sources = None, []
    for path in sorted(folder.glob("events-*.jsonl")):
        with path.open("rb") as file:
            first = _record(file.readline(LONGEST_LINE))
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            last = _record((file.read().splitlines() or [b""])[-1])
        if first is None:
            continue
        run = run or first.run
        if last is None or not isinstance(last.event, LogClosed):
            sources.append(first.source)
    return run, sources


def _record(line: bytes) -> Record | None:
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None

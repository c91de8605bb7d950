"""``LogReader``: the records of several files, merged in causal order, in bounded memory.

The clock of a record is higher than that of all records that can have caused it, so the order of
the clocks is a causal one. A piece of each file is in memory; what every file has got past is
sorted and given out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from rlconform.events.log_file import DefectKind, LogDefect, LogFile, LogFileInfo
from rlconform.events.schema import Record

__all__ = ["DefectKind", "LogDefect", "LogFileInfo", "LogReader", "log_files"]

_CLOCK = attrgetter("clock")
#: Bytes of all pieces together; decoded they take about six times as much.
_PIECES_BYTES = 16 << 20
_SMALLEST_PIECE = 1 << 14
_LARGEST_PIECE = 1 << 16  # larger ones take longer: they leave the processor's cache


def log_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files of events that are named, or lie in the folders that are named.

    Raises:
        ValueError: A path does not exist, or a folder has no file of events.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("events-*.jsonl"))
            if not inside:
                raise ValueError(f"{path} has no files of events (events-<role>-<pid>.jsonl)")
            found.update(dict.fromkeys(inside))
        elif path.is_file():
            found[path] = None
        else:
            raise ValueError(f"{path} does not exist; name files of events, or their folder")
    return list(found)


class LogReader:
    """Iterates over the records of files in causal order; ``defects`` grows as it reads.

    Args:
        files: Paths of files of events.
        piece_bytes: Bytes to read of a file at once; by default few if there are many files.
    """

    def __init__(self, files: Sequence[Path], piece_bytes: int | None = None) -> None:
        share = _PIECES_BYTES // max(1, len(files))
        size = piece_bytes or min(_LARGEST_PIECE, max(_SMALLEST_PIECE, share))
        self.defects: list[LogDefect] = []
        self._files = [LogFile(path, size, self.defects.append) for path in files]
        self._run: str | None = None

    @property
    def files(self) -> list[LogFileInfo]:
        """What was read of each file so far."""
        return [file.info for file in self._files]

    def __iter__(self) -> Iterator[Record]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Record]]:
        """Iterate over lists of records; their concatenation is in causal order.

        Raises:
            OSError: A file can't be read.
        """
        waiting: list[list[Record]] = [[] for _ in self._files]
        while True:
            for number, file in enumerate(self._files):
                if not waiting[number] and not file.ended:
                    waiting[number] = file.next_records()
                    self._check_run(file)
            unfinished = [
                waiting[number][-1].clock
                for number, file in enumerate(self._files)
                if not file.ended and waiting[number]
            ]
            if not any(waiting):
                return
            batch = _take_until(waiting, min(unfinished)) if unfinished else []
            if not batch:  # all files are read, or the clocks of one, as it has noted, go back
                batch = [record for records in waiting for record in records]
                waiting = [[] for _ in self._files]
            batch.sort(key=_CLOCK)  # stable: records of one file stay in order
            yield batch

    def _check_run(self, file: LogFile) -> None:
        if self._run is None:
            self._run = file.info.run
        elif file.info.run not in {None, self._run} and file.info.records:
            said = f"expected run {self._run!r}; got {file.info.run!r}"
            if not any(d.path == file.info.path and d.message == said for d in self.defects):
                file.note(DefectKind.OTHER_RUN, said)


def _take_until(waiting: list[list[Record]], clock: int) -> list[Record]:
    """Remove and return the records whose clock is at most ``clock``."""
    batch: list[Record] = []
    for number, records in enumerate(waiting):
        if records and records[0].clock <= clock:
            count = bisect_right(records, clock, key=_CLOCK)
            batch += records[:count]
            waiting[number] = records[count:]
    return batch

"""``EventWriter``: appends the events of one process to its file, and never takes the run down.

    any thread ── write(event) ──▶ lock: seq, clock ──▶ one os.write ──▶ events-<role>-<pid>.jsonl
    sender     ── stamp() ──▶ message ──▶ observe(stamp) ── receiver's writer: its clock passes it

When ``write`` returns the operating system has the line, so a killed process loses none. What can't
be written is counted, leaves a gap in ``seq``, and is named in the last line of the file.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, SupportsFloat, SupportsIndex

import msgspec

from rlconform.events.schema import SCHEMA_VERSION, EventSource, LogClosed, RunEvent

_LOG = logging.getLogger("rlconform.events")
#: Each open writer; those of a forked child open files of their own.
_OPEN: weakref.WeakSet[EventWriter] = weakref.WeakSet()


class Timer(Protocol):
    """Says what time it is; the module ``time``, but for simulated runs."""

    def time_ns(self) -> int:
        """Return the wall time in nanoseconds."""
        ...

    def monotonic_ns(self) -> int:
        """Return the monotonic time in nanoseconds."""
        ...


class EventWriter:
    """Writes events of this process; safe in threads and across ``fork``.

    ::

        with EventWriter("run/events", run="r1", role="trainer") as events:
            events.write(Trained(group_id="train-12", rows=[0, 1], step=3, version=2))
            queue.put((batch, events.stamp()))  # the receiver: events.observe(stamp)

    Args:
        folder: The folder of the run's files, the same for all processes; None writes nothing.
        run: Name of the run, the same in all processes and after restarts.
        role: What this process does, such as ``trainer``.
        rank: Number of the process among those of its role.
        incarnation: Number of restarts of this process; by default the files that one of its role
            and pid has left in the folder.
        timer: What the events are timed by.

    No method raises because of a disk, a closed file or a value that JSON has no form for.
    """

    def __init__(
        self, folder: str | Path | None, *, run: str, role: str, rank: int = 0,
        incarnation: int | None = None, timer: Timer = time,
    ) -> None:  # fmt: skip
        self._folder = None if folder is None else Path(folder)
        self._run, self._role, self._rank, self._incarnation = run, role, rank, incarnation
        self._timer = timer
        self._encode = msgspec.json.Encoder(enc_hook=_plain_number).encode
        self._clock = 0
        self._begin()
        if self._unopened:
            self._open()

    def _begin(self) -> None:
        """Begin with seq 0 and no file, as a new process; a forked child does so again."""
        self._lock = threading.Lock()
        self._seq = self._lost = 0
        self._torn = False
        self._last_error: str | None = None
        self._fd: int | None = None
        self._unopened = self._folder is not None
        self.path: Path | None = None
        self.source = EventSource(
            self._role, self._rank, socket.gethostname(), os.getpid(), self._incarnation or 0
        )

    def _open(self) -> None:
        self._unopened = False
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._fd, self.path, used = _new_file(
                self._folder, f"events-{self._role}-{os.getpid()}"
            )
        except OSError as error:
            self._last_error = str(error)
            _LOG.warning("no events are written: %s", error)
            return
        if self._incarnation is None:
            self.source = msgspec.structs.replace(self.source, incarnation=used)
        run, source = self._encode(self._run).decode(), self._encode(self.source).decode()
        fixed = f'{{"schema":{SCHEMA_VERSION},"run":{run},"source":{source},'
        self._head = (
            fixed.replace("%", "%%") + '"seq":%d,"clock":%d,"mono_ns":%d,"wall_ns":%d,"event":'
        )
        _OPEN.add(self)

    @property
    def lost(self) -> int:
        """Number of events that could not be written."""
        return self._lost

    def write(self, event: RunEvent) -> None:
        """Append one event; on failure count it as lost."""
        if self._fd is None and not self._unopened:
            return
        with self._lock:
            if self._unopened:  # the first event of a forked child
                self._open()
            wall = self._timer.time_ns()
            self._clock = clock = max(self._clock + 1, wall // 1000)
            seq, self._seq = self._seq, self._seq + 1
            try:
                body = self._encode(event)
                head = self._head % (seq, clock, self._timer.monotonic_ns(), wall)
                self._append(b"%s%s}\n" % (head.encode(), body))
            except (OSError, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
                self._count_lost(error)

    def _append(self, line: bytes) -> None:
        if self._fd is None:  # closed by another thread meanwhile
            raise OSError("the file of events is closed")
        if self._torn:
            line = b"\n" + line
        written = os.write(self._fd, line)
        while written < len(line):
            self._torn = True  # unless the rest can be written
            written += os.write(self._fd, line[written:])
        self._torn = False

    def _count_lost(self, error: Exception) -> None:
        self._lost += 1
        if self._last_error is None:
            _LOG.warning("an event could not be written to %s: %s", self.path, error)
        self._last_error = f"{type(error).__name__}: {error}"[:200]

    def stamp(self) -> int:
        """Return the clock to send with a message, so that its receipt is after all of this."""
        return self._clock

    def observe(self, stamp: int) -> None:
        """Take note of a stamp that came with a message, before writing what the message causes."""
        with self._lock:
            self._clock = max(self._clock, stamp)

    def close(self) -> None:
        """Write the last line and close the file; later calls do nothing."""
        if self._fd is None:
            return
        self.write(LogClosed(lost=self._lost, last_error=self._last_error))
        with self._lock:
            fd, self._fd = self._fd, None
        _OPEN.discard(self)
        if fd is not None:
            try:
                os.close(fd)
            except OSError as error:
                _LOG.warning("%s was not closed: %s", self.path, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def _new_file(folder: Path, name: str) -> tuple[int, Path, int]:
    """Create a file that no other process has: its descriptor, its path, and how many were taken.

    Two hosts may have processes of the same pid, and a container gives the same pid again.
    """
    taken = 0
    while True:
        path = folder / (f"{name}.jsonl" if taken == 0 else f"{name}-{taken}.jsonl")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            return os.open(path, flags, 0o644), path, taken
        except FileExistsError:
            taken += 1


def _plain_number(value: Any) -> int | float:
    """Return NumPy's and torch's scalars as numbers."""
    if isinstance(value, SupportsIndex):
        return value.__index__()
    if isinstance(value, SupportsFloat):
        return float(value)
    raise TypeError(f"expected text, numbers or lists of them; got {type(value).__name__}")


def _close_all() -> None:
    for writer in list(_OPEN):
        writer.close()


def _begin_all_in_child() -> None:
    for writer in list(_OPEN):
        inherited = writer._fd
        writer._begin()  # opens a file if the child writes
        if inherited is not None:
            os.close(inherited)


atexit.register(_close_all)
os.register_at_fork(after_in_child=_begin_all_in_child)

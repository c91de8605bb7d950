"""``TestProcess``: the runner's handle of a test process, to wait for its events and to end it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from rlconform.certify.isolation.calls_file import read_calls
from rlconform.certify.isolation.events import Event, ProcessEnded, ProcessStarted
from rlconform.certify.isolation.workspace import how_it_ended
from rlconform.certify.reproduce.render import Call

#: Exit status of pytest, see ``pytest.ExitCode``.
_USAGE_ERROR = 4

#: Bytes that a process may print before the beginning is dropped, and those of a tail.
LARGEST_LOG, LOG_TAIL = 32 << 20, 1 << 18
#: Seconds between two looks at the size of the log.
LOG_LOOK_S = 0.5


class TestProcess:
    """One test process. ``next_event`` waits for its events; ``end`` always ends it."""

    def __init__(self, events: queue.Queue[Event], number: int, log: Path, calls: Path) -> None:
        self._events, self._number, self._log, self._calls = events, number, log, calls
        self._pid: int | None = None
        self._code: int | None = None
        self._look_at = 0.0

    def next_event(self, deadline: float) -> Event | None:
        """Return the next event or, after the last, None; ``TimeoutError`` at ``deadline``."""
        while self._code is None:
            self._shorten_log()
            left = deadline - time.monotonic()
            try:
                event = self._events.get(timeout=max(0.0, min(left, LOG_LOOK_S)))
            except queue.Empty:
                if left > LOG_LOOK_S:
                    continue
                raise TimeoutError from None
            match event:
                case ProcessStarted(number, pid):
                    if number == self._number:
                        self._pid = pid
                case ProcessEnded(number, code):
                    if number in {self._number, None}:
                        self._code = code
                case _:
                    return event
        return None

    def stacks(self, patience_s: float = 3.0) -> str:
        """Return the stack of each thread, which the process's fault handler prints on a signal."""
        before = last = self._log.stat().st_size
        if self._pid is None or self._code is not None:
            return self.tail()
        self._send(signal.SIGUSR1)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            look_again = time.monotonic() + 0.1
            with contextlib.suppress(TimeoutError):
                while self.next_event(look_again) is not None:
                    continue
                break  # it has ended
            size = self._log.stat().st_size
            if before < last == size:  # the handler writes line by line, and has finished
                break
            last = size
        return self.tail(since=before)

    def calls(self, check: str) -> Sequence[Call]:
        """Return the calls of the check, if it runs or ran last."""
        return read_calls(self._calls, check)

    def tail(self, since: int = 0, lines: int = 60) -> str:
        """Return the last lines that the process printed."""
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            start = since if since <= size else 0  # it was shortened
            log.seek(max(start, size - LOG_TAIL))
            text = log.read(LOG_TAIL).decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])

    def _shorten_log(self) -> None:
        """Drop all but the end of the log once it is too large; looks now and then only."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOG_LOOK_S
        if self._log.stat().st_size > LARGEST_LOG:
            end = self.tail().encode()
            os.truncate(self._log, 0)  # the process appends, so it goes on at the new end
            with self._log.open("ab") as log:
                log.write(b"(what was printed before was dropped)\n" + end + b"\n")

    def usage_error(self) -> str:
        """Return pytest's message about options it can't use (a mistyped ``-k``, say), else ""."""
        if self._code != _USAGE_ERROR:
            return ""
        return self.tail().strip().rpartition("\n")[2].removeprefix("ERROR: ")

    def how_it_ended(self) -> str:
        """Return the exit status or signal of the process, in words."""
        return "did not end" if self._code is None else how_it_ended(self._code)

    def end(self, grace_s: float) -> None:
        """Wait ``grace_s`` seconds for the process to end by itself, then kill it."""
        for wait_s in (grace_s, 10.0):
            deadline = time.monotonic() + wait_s
            try:
                while self.next_event(deadline) is not None:
                    continue
            except TimeoutError:
                self._send(signal.SIGKILL)
            else:
                return

    def _send(self, wanted: signal.Signals) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(self._pid, wanted)

"""Limits on what reading one file may take: seconds and memory."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

#: Seconds for one file. The slowest takes one, and machines may be busy.
MOST_S = 20.0
#: Bytes in addition to what the process has.
MOST_BYTES = 2 << 30


class TookTooLong(BaseException):
    """Reading a file did not end in time. No reader catches it."""


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let the process take at most ``MOST_BYTES`` more in the block."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def limited_time() -> Iterator[None]:
    """Raise ``TookTooLong`` in the block after ``MOST_S``."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"it did not end within {MOST_S:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

"""``CallsFile``: the calls of the check that runs now, in a file that outlives its process.

    test process ──restart(check), write(call)──▶ file ──read_calls(check)──▶ runner, if the
                                                                              process is lost

The runner reads the file only when a process dies or hangs. A check may make thousands of calls per
second: sent as events, each would wake the runner, which takes time from the plane.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

from pydantic import TypeAdapter

from rlconform.certify.isolation.events import identity
from rlconform.certify.reproduce.render import Call

_CALL = TypeAdapter(Call)


class CallsFile:
    """The writing end, in the test process; without a path it writes nothing.

    A plane may close its descriptor: what is written after that is lost, and no check fails for it.
    """

    def __init__(self, path: str | None) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._fd = None if path is None else os.open(path, flags, 0o600)
        self._file = identity(self._fd)
        self._lock = threading.Lock()

    def restart(self, check: str) -> None:
        """Drop all calls: the check begins, or another example of its Hypothesis property."""
        with self._lock:
            if self._fd is not None and identity(self._fd) == self._file:
                with suppress(OSError):
                    os.ftruncate(self._fd, 0)
                self._append(json.dumps(check))

    def write(self, call: Call) -> None:
        """Append the call, from any thread."""
        if self._fd is not None:
            line = json.dumps(vars(call), default=vars)
            with self._lock:
                self._append(line)

    def _append(self, line: str) -> None:
        data = f"\n{line}".encode()  # after a line that could not be written whole
        with suppress(OSError):
            while data and self._fd is not None and identity(self._fd) == self._file:
                data = data[os.write(self._fd, data) :]


def read_calls(path: Path, check: str) -> Sequence[Call]:
    """Return the calls of the check by number; none if the file is of another check by now.

    The last line may be cut short, as its process died.
    """
    first, *lines = path.read_bytes().split(b"\n")[1:] or [b""]
    if first != json.dumps(check).encode():
        return []
    calls: list[Call] = []
    for line in lines:
        with suppress(ValueError):
            calls.append(_CALL.validate_json(line))
    return sorted(calls, key=attrgetter("number"))

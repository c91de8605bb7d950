"""``Journal``: the calls of one workload in a file, which survives the death of its process.

    workload ──write──▶ file ◀──poll── JournalReader, in the process of the check

Each call has two lines: one before the call is made and one when it has ended. A killed process
leaves a call without its second line, and perhaps half a line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from rlconform.certify.concurrency.operation import Operation, as_dict, from_dict


class Journal:
    """Appends calls to a file. A write needs no flush: the kernel keeps it if the process dies."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, index: int, op: Operation) -> None:
        """Append the workload's call number ``index`` in its present state."""
        line = json.dumps([index, as_dict(op)], default=repr)
        os.write(self._fd, f"{line}\n".encode())


class JournalReader:
    """Reads a journal while its workload writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0  # bytes
        self._operations: dict[int, Operation] = {}

    def poll(self) -> list[Operation]:
        """Read what is new; return all calls so far, the one under way without its end."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                lines, found, _half = file.read().rpartition(b"\n")
            self._read += len(lines + found)
            for line in lines.splitlines():
                index, saved = json.loads(line)
                self._operations[index] = from_dict(saved)
        return list(self._operations.values())

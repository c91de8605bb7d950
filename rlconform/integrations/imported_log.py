"""``ImportedLog``: writes a file of events whose times come from another log."""

from __future__ import annotations

import io
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from rlconform.events.schema import EventSource, LogClosed, Record, RunEvent


class ImportedLog:
    """Writes events in causal order, each with the time that it had in the log it comes from.

    Args:
        folder: The folder to write to; it must have no file of this name yet.
        run: Name of the run.
        framework: The framework whose log is imported.

    Raises:
        OSError: The file is there, or can't be written.
    """

    def __init__(self, folder: Path, run: str, framework: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"events-{framework}-0.jsonl"
        self.count = 0
        self._run, self._source = run, EventSource(framework, 0, "imported", 0)
        self._clock = self._wall_ns = 0
        self._encode = msgspec.json.Encoder().encode
        self._file: io.BufferedWriter = self.path.open("xb")

    def write(self, event: RunEvent, at_s: float | None = None) -> None:
        """Write an event that was at ``at_s``, seconds since 1970; None if that isn't known."""
        if at_s is not None:
            self._wall_ns = int(at_s * 1e9)
        self._clock = max(self._clock + 1, self._wall_ns // 1000)
        record = Record(
            run=self._run, seq=self.count, clock=self._clock, mono_ns=self._wall_ns,
            wall_ns=self._wall_ns, source=self._source, event=event,  # type: ignore[arg-type]
        )  # fmt: skip
        self._file.write(self._encode(record) + b"\n")
        self.count += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        """Write the last line; after an error remove the file, which would be a part of a run."""
        if error is None:
            self.write(LogClosed())
        self._file.close()
        if error is not None:
            self.path.unlink()

"""``FailureReport``: the failure of an example, with the recorded calls of this example."""

from __future__ import annotations

from dataclasses import dataclass

from rlconform.certify.recording.recorder import Recording
from rlconform.certify.reproduce.expectations import ScriptExpectation


class Excerpt(Recording):
    """A copy of the recorded calls of one example, kept while other examples are recorded."""

    def __init__(self, recording: Recording, error: Exception) -> None:
        super().__init__()
        self.calls = list(recording.calls)
        self.plane_time = recording.plane_time
        self._lines = recording.lines()
        self._judged = recording.script_expectation(error)
        self._whole = recording

    def lines(self) -> list[str]:
        """Return the lines of the example's calls."""
        return self._lines

    def script_expectation(self, error: BaseException) -> ScriptExpectation | None:  # noqa: ARG002 - of the recording
        """Return what a script expects instead of the example's error, which ``error`` wraps."""
        return self._judged

    def finish(self, timeout_s: float) -> None:
        """Finish the recording that the calls were copied from."""
        self._whole.finish(timeout_s)


@dataclass(frozen=True)
class FailureReport:
    """The failure of an example, and the calls of this example."""

    text: str
    error: Exception
    calls: Excerpt

    @classmethod
    def of(cls, error: Exception, recording: Recording) -> FailureReport:
        """Build the report of an error that was raised after these calls."""
        text = recording.error_origin(error) or str(error).strip()
        return cls(text, error, Excerpt(recording, error))

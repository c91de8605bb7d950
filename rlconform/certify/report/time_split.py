"""Splits the time of a certification into the plane's part and rlconform's."""

from __future__ import annotations

from dataclasses import dataclass

from rlconform.certify.results import RunRecord


@dataclass(frozen=True)
class TimeSplit:
    """A run's wall time in three parts that add up to it, s.

    Attributes:
        total: The whole run.
        processes: Starting and ending test processes, planes and the processes attached to them.
        plane_calls: At least one client call was under way; calls at the same time count once.
        kit: The rest: making rows, comparing them, recording calls.
    """

    total: float
    processes: float
    plane_calls: float
    kit: float

    @property
    def kit_share(self) -> float:
        """The fraction of the total time that rlconform used, 0 to 1."""
        return self.kit / self.total if self.total else 0.0


def time_split(run: RunRecord) -> TimeSplit:
    """Split the time of ``run``."""
    results = run.results.values()
    calls = sum(result.plane_seconds for result in results)
    processes = run.process_seconds + sum(result.start_seconds for result in results)
    return TimeSplit(run.seconds, processes, calls, max(0.0, run.seconds - processes - calls))

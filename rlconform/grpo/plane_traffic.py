"""What a run's processes move through the plane, counted in each of them, step by step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from rlconform.contract import DataPlaneClient
from rlconform.plane import MetricEvent

#: Opens an attached client, in whichever process it is called.
Attach = Callable[[], DataPlaneClient]

_WRITES = {"put_samples"}
_READS = {"get_samples", "get_data"}


@dataclass(frozen=True)
class Traffic:
    """Of one client, or of several together.

    Attributes:
        calls: Of the plane's methods.
        bytes_written: In tensors put; object columns count as 0.
        bytes_read: In tensors read.
        seconds: Spent in the calls; of several clients that wait for each other, the longest.
    """

    calls: int = 0
    bytes_written: int = 0
    bytes_read: int = 0
    seconds: float = 0.0

    @classmethod
    def of_ranks(cls, ranks: list[Traffic]) -> Traffic:
        """Of ranks that work at the same time: counts add up, the slowest one's seconds count."""
        return cls(
            sum(each.calls for each in ranks),
            sum(each.bytes_written for each in ranks),
            sum(each.bytes_read for each in ranks),
            max((each.seconds for each in ranks), default=0.0),
        )


class TrafficMeter:
    """Adds up the operations of a ``MetricsClient``; ``hear`` is its callback."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sum = Traffic()

    def hear(self, operation: MetricEvent) -> None:
        """Take one operation into the sum."""
        with self._lock:
            self._sum = Traffic(
                self._sum.calls + 1,
                self._sum.bytes_written + operation.n_bytes * (operation.op in _WRITES),
                self._sum.bytes_read + operation.n_bytes * (operation.op in _READS),
                self._sum.seconds + operation.wall_ms / 1e3,
            )

    def take(self) -> Traffic:
        """The sum since the last call."""
        with self._lock:
            taken, self._sum = self._sum, Traffic()
        return taken

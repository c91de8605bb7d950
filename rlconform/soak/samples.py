"""Samples of a soak run: rates and latencies of calls, memory and descriptors of processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

import psutil

from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.memory_usage import held_bytes


@dataclass
class ProcessSeries:
    """Memory and open descriptors of one process over time."""

    name: str
    pid: int
    seconds: list[float] = field(default_factory=list)
    bytes_held: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def sample(self, at: float) -> bool:
        """Add a sample; False if the process has ended."""
        try:
            descriptors = psutil.Process(self.pid).num_fds()
        except psutil.NoSuchProcess:
            return False
        if not (held := held_bytes(self.pid)):
            return False
        self.seconds.append(at)
        self.bytes_held.append(held)
        self.descriptors.append(descriptors)
        return True


@dataclass
class CallSeries:
    """Calls of one kind: how many, and how long they took, per interval."""

    seconds: list[float] = field(default_factory=list)  # at the end of each interval
    per_second: list[float] = field(default_factory=list)
    median_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    total: int = 0

    def add(self, at: float, interval: float, took_s: Sequence[float]) -> None:
        """Add an interval in which calls took these seconds."""
        self.total += len(took_s)
        self.seconds.append(at)
        self.per_second.append(len(took_s) / interval)
        self.median_ms.append(1000 * median(took_s) if took_s else 0.0)
        high = quantiles(took_s, n=100)[-1] if len(took_s) > 1 else (took_s or [0.0])[0]
        self.p99_ms.append(1000 * high)


@dataclass
class CallRates:
    """Calls by kind, collected until the end of an interval."""

    series: dict[str, CallSeries] = field(default_factory=lambda: defaultdict(CallSeries))
    _took: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _since: float = 0.0

    def add(self, op: Operation) -> None:
        """Count a call that has ended."""
        assert op.end is not None
        self._took[op.op].append(op.end - op.start)

    def end_interval(self, at: float) -> None:
        """End the interval at ``at`` seconds of the run."""
        for kind in {*self._took, *self.series}:
            self.series[kind].add(at, at - self._since or 1.0, self._took[kind])
        self._took.clear()
        self._since = at


def series_of(processes: Mapping[str, int]) -> list[ProcessSeries]:
    """Return an empty series for each process, by name and pid."""
    return [ProcessSeries(name, pid) for name, pid in processes.items()]

"""The hosts of a Ray, and the clocks of its other hosts, for processes that are spread over them.

    check's host ── now() ──▶ process on another host      ``ClockOffset.measured``, when it starts
                 ◀─ its clock ─                            and after each workload
    times of its calls ── ``here`` ──▶ this host's clock, wider by what the measurement leaves open

Histories are ordered by one clock. A wider span only weakens what a history proves: an anomaly
that is found between hosts is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlconform.certify.concurrency.operation import Operation
from rlconform.contract import ConfigError

#: Round trips of a measurement, of which the fastest counts.
_TRIPS = 5


@dataclass(frozen=True)
class RayHost:
    """A host that has joined the Ray."""

    node_id: str
    name: str


@dataclass(frozen=True)
class ClockOffset:
    """How far another host's clock is ahead of this one's, in seconds; ``error`` either way."""

    ahead: float = 0.0
    error: float = 0.0

    @classmethod
    def measured(
        cls, now_there: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> ClockOffset:
        """Ask for the other clock; half of the fastest round trip stays open."""
        trips = []
        for _ in range(_TRIPS):
            sent = clock()
            there = now_there()
            trips.append((clock() - sent, there, sent))
        took, there, sent = min(trips)
        return cls(there - (sent + took / 2), took / 2)

    def joined(self, later: ClockOffset) -> ClockOffset:
        """Return an offset that holds throughout the time between two measurements."""
        low = min(self.ahead - self.error, later.ahead - later.error)
        high = max(self.ahead + self.error, later.ahead + later.error)
        return ClockOffset((low + high) / 2, (high - low) / 2)

    def here(self, span: tuple[float, float]) -> tuple[float, float]:
        """Return a span of the other clock as one of this clock that surely contains it."""
        return span[0] - self.ahead - self.error, span[1] - self.ahead + self.error

    def operation_here(self, op: Operation) -> Operation:
        """Return a call with its times on this clock."""
        start, end = self.here((op.start, op.start if op.end is None else op.end))
        return replace(op, start=start, end=None if op.end is None else end)


def ray_hosts() -> list[RayHost]:
    """Return the hosts of the Ray, this one first; ``ConfigError`` if there is no other."""
    import ray  # noqa: PLC0415 - only checks of several processes need Ray

    here = ray.get_runtime_context().get_node_id()
    nodes: Any = ray.nodes  # Ray does not type it
    return hosts_of(nodes(), here)


def hosts_of(nodes: Sequence[dict[str, Any]], here: str) -> list[RayHost]:
    """Return the hosts of Ray's nodes that are alive, the one named ``here`` first."""
    alive = [
        RayHost(node["NodeID"], node["NodeManagerHostname"]) for node in nodes if node["Alive"]
    ]
    if len({host.name for host in alive}) < 2:
        found = ", ".join(sorted({host.name for host in alive})) or "none"
        raise ConfigError(f"--spread: expected a Ray of at least 2 hosts; got {found}")
    return sorted(alive, key=lambda host: (host.node_id != here, host.name))


def host_for(hosts: Sequence[RayHost], number: int) -> RayHost:
    """Return the host of the process with this number, from 1: the first is on another host."""
    return hosts[number % len(hosts)]

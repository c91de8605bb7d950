"""Clients of the run's plane that count traffic: calls, bytes and seconds in each process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from rlconform.contract import DataPlaneClient
from rlconform.events import EventWriter
from rlconform.grpo.events_actor import EventsActor
from rlconform.plane import EventClient, MetricEvent, MetricsClient

#: Opens an attached client in the process that calls it.
Attach = Callable[[], DataPlaneClient]

_WRITES = {"put_samples"}
_READS = {"get_samples", "get_data"}


@dataclass(frozen=True)
class Traffic:
    """Calls, tensor bytes and seconds of one or more clients; object columns count as 0 bytes."""

    calls: int = 0
    bytes_written: int = 0
    bytes_read: int = 0
    seconds: float = 0.0

    @classmethod
    def of_ranks(cls, ranks: list[Traffic]) -> Traffic:
        """Combine ranks that ran at the same time: add the counts, take the longest time."""
        return cls(
            sum(each.calls for each in ranks),
            sum(each.bytes_written for each in ranks),
            sum(each.bytes_read for each in ranks),
            max(each.seconds for each in ranks),
        )


class TrafficMeter:
    """Adds up the operations of a ``MetricsClient``, which gets ``on_operation`` as callback."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sum = Traffic()

    def on_operation(self, operation: MetricEvent) -> None:
        """Add one operation."""
        with self._lock:
            self._sum = Traffic(
                self._sum.calls + 1,
                self._sum.bytes_written + operation.n_bytes * (operation.op in _WRITES),
                self._sum.bytes_read + operation.n_bytes * (operation.op in _READS),
                self._sum.seconds + operation.wall_ms / 1e3,
            )

    def take(self) -> Traffic:
        """Return the traffic since the last call of this method."""
        with self._lock:
            taken, self._sum = self._sum, Traffic()
        return taken


def metered_client(
    client: DataPlaneClient, meter: TrafficMeter, writer: EventWriter | None
) -> MetricsClient:
    """Wrap a client so that its operations are counted and, with a writer, logged as events."""
    if writer is not None:
        client = EventClient(client, writer)
    return MetricsClient(client, meter.on_operation)


class PlaneActor(EventsActor):
    """Mixin of an actor that has a client of the run's plane."""

    _client: MetricsClient | None = None

    def traffic(self) -> Traffic:
        """Return the traffic of this actor's client since the last call."""
        return self._meter.take()

    def detach(self) -> None:
        """Detach from the plane. Idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open_client(self, attach: Attach) -> MetricsClient:
        """Attach to the running plane, after detaching from a previous one."""
        self.detach()
        self._meter = TrafficMeter()
        self._client = metered_client(attach(), self._meter, self.event_writer)
        return self._client

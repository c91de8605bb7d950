"""``EventsActor``: the base class of actors that write a file of events, if the run wants one.

driver ── open_events(log, rank, stamp) ──▶ actor ── EventSource ──▶ driver
       ── close_events ──▶ actor: the last line of its file
"""

from __future__ import annotations

from dataclasses import dataclass

from rlconform.events import EventWriter
from rlconform.events.schema import EventSource, LogOpened, RunEvent


@dataclass(frozen=True)
class EventLogPlace:
    """Where the processes of a run write their events; ``folder`` is absolute."""

    folder: str
    run: str

    def writer(self, role: str, rank: int = 0) -> EventWriter:
        """Open a file of events for this process."""
        return EventWriter(self.folder, run=self.run, role=role, rank=rank)


class EventsActor:
    """An actor whose events go to ``event_writer``; None until ``open_events``."""

    #: The word for this kind of actor in names of files.
    event_role = "actor"
    event_writer: EventWriter | None = None

    def open_events(self, place: EventLogPlace, rank: int, stamp: int) -> EventSource:
        """Open a file of events with its first line, after closing that of a previous run."""
        self.close_events()
        self.event_writer = place.writer(self.event_role, rank)
        self.event_writer.observe(stamp)
        self.event_writer.write(LogOpened())
        return self.event_writer.source

    def write_event(self, event: RunEvent) -> None:
        """Append an event; nothing before ``open_events``."""
        writer = self.event_writer  # which another thread may close
        if writer is not None:
            writer.write(event)

    def exchange_stamps(self, stamp: int) -> int:
        """Take note of the caller's clock, and return this one, which is not behind it."""
        if self.event_writer is None:
            return stamp
        self.event_writer.observe(stamp)
        return self.event_writer.stamp()

    def close_events(self) -> None:
        """Write the last line; what comes later is not written. Idempotent."""
        if self.event_writer is not None:
            self.event_writer.close()
            self.event_writer = None

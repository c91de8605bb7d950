"""``ActorEvents``: the driver's side of the files of events of some actors that may die.

    driver ── open ──▶ actors: a file of events each ── EventSource ──▶ driver
           ── note_deaths, after each step: a call that nobody waits for ──▶ actors
           ── process_lost of those that died ──▶ the driver's own file
           ── close ──▶ actors: the last line

Rollout workers call reward workers, and rollouter and trainer the queue, so the driver would not
notice by its own calls which of them has died. Only ``open`` and ``close`` wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError

from rlconform.events.schema import EventSource
from rlconform.grpo.events_actor import EventLogPlace
from rlconform.grpo.failures import WorkerDied
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.workers.worker_group import fetch


class ActorEvents:
    """Opens, watches and closes the files of ``actors``; ``what`` is their name in errors."""

    def __init__(self, actors: Sequence[Any], timeout_s: float, what: str) -> None:
        self._actors, self._timeout_s, self._what = actors, timeout_s, what
        self._events = RunEvents()
        self._sources: dict[int, EventSource] = {}  # of living actors with open files
        self._calls: dict[int, Any] = {}  # the last one of each, whose answer may be on its way

    @property
    def sources(self) -> list[EventSource]:
        """The actors with open files that are not known to have died."""
        return list(self._sources.values())

    def open(self, place: EventLogPlace, events: RunEvents) -> None:
        """Open a file in each actor; ``WorkerDied`` if one has died, ``WorkerLost`` if it hangs."""
        self._events, self._calls = events, {}
        calls = [
            actor.open_events.remote(place, rank, events.stamp())
            for rank, actor in enumerate(self._actors)
        ]
        sources = fetch(calls, self._timeout_s, f"{self._what}'s open_events")
        self._sources = dict(enumerate(sources))

    def note_deaths(self) -> None:
        """Write which actors have died, as far as it is known; wait for none."""
        for rank in list(self._sources):
            call = self._calls.pop(rank, None)
            if call is not None and not ray.wait([call], timeout=0)[0]:
                self._calls[rank] = call  # it is busy, and its turn comes later
                continue
            try:
                if call is not None:
                    self._events.observe(ray.get(call))
            except RayActorError:
                self._note_death(rank)
                continue
            actor = self._actors[rank]
            self._calls[rank] = actor.exchange_stamps.remote(self._events.stamp())

    def close(self) -> None:
        """Close all files, and write which actors have died. Idempotent."""
        calls = {rank: self._actors[rank].close_events.remote() for rank in self._sources}
        for rank, call in calls.items():
            try:
                fetch(call, self._timeout_s, f"{self._what}'s close_events")
            except WorkerDied:
                self._note_death(rank)
        self._sources, self._calls = {}, {}

    def _note_death(self, rank: int) -> None:
        self._events.lost([self._sources.pop(rank)], "it has died")

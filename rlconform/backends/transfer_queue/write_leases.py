"""``WriteLeases``: which puts write which rows now, so that two writers of a row never mix.

    add(token, ...) ──▶ live, until its lease runs out ──▶ given up
          └── remove(token): written, or taken back

A put holds a lease, as its process may die in the middle. A lease that ran out protects nothing,
and a put that wakes after it is told so: its token is not here any more.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass


class LeaseExpired(Exception):
    """A put that outlived its lease, or was never pinned."""


@dataclass(frozen=True, slots=True)
class WriteLease:
    """A put that is writing: its rows, its fields with their kinds, and the end of its lease."""

    sample_ids: list[str]
    indexes: list[int]
    kinds: dict[str, str]
    expires: float


class WriteLeases:
    """The puts that are writing. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._leases: dict[int, WriteLease] = {}
        self._writers: dict[int, set[int]] = {}  # index -> tokens

    def add(
        self,
        token: int,
        sample_ids: list[str],
        indexes: list[int],
        kinds: dict[str, str],
        lease_s: float,
    ) -> None:
        """Pin the rows for a put that is trusted for ``lease_s`` seconds."""
        self._leases[token] = WriteLease(sample_ids, indexes, kinds, self._clock() + lease_s)
        for index in indexes:
            self._writers.setdefault(index, set()).add(token)

    def get(self, token: int) -> WriteLease:
        """The put's lease. ``LeaseExpired`` if it has none."""
        if token not in self._leases:
            raise LeaseExpired
        return self._leases[token]

    def remove(self, token: int) -> None:
        """Let go of a put's rows; no error if it holds none."""
        lease = self._leases.pop(token, None)
        for index in lease.indexes if lease else ():
            writers = self._writers[index]
            writers.discard(token)
            if not writers:
                del self._writers[index]

    def holds(self, index: int) -> bool:
        """Whether a put is writing at the index."""
        now = self._clock()
        for token in list(self._writers.get(index, ())):
            if self._leases[token].expires <= now:
                self.remove(token)
        return index in self._writers

    def count_outside(self, indexes: Container[int]) -> int:
        """How many indexes puts are writing at that are none of these."""
        return sum(index not in indexes and self.holds(index) for index in list(self._writers))

    def writes(self, indexes: Iterable[int], names: Iterable[str]) -> bool:
        """Whether a put is writing to one of the fields at one of the indexes."""
        wanted = set(names)
        return any(
            not wanted.isdisjoint(self._leases[token].kinds)
            for index in indexes
            if self.holds(index)
            for token in self._writers[index]
        )

"""``WriteLeases``: the puts that are writing, so that two puts never write the same row at once.

    add(token, ...) ──▶ active ──▶ remove(token): committed or undone
                          └──▶ expired

A put has a lease because its process may die. An expired lease protects nothing; if its put goes
on, the put gets ``PlaneUnavailable``, because its token is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from rlconform.contract import PlaneUnavailable


@dataclass(frozen=True, slots=True)
class WriteLease:
    """One put's lease: its rows, its fields with their kinds, and the time when it expires."""

    sample_ids: list[str]
    indexes: list[int]
    kinds: dict[str, str]
    expires: float


class WriteLeases:
    """The active leases. ``clock`` returns monotonic seconds."""

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
        """Lease the rows to a put for ``lease_s`` seconds."""
        self._leases[token] = WriteLease(sample_ids, indexes, kinds, self._clock() + lease_s)
        for index in indexes:
            self._writers.setdefault(index, set()).add(token)

    def get(self, token: int) -> WriteLease:
        """Return a put's lease. ``PlaneUnavailable`` if it has none, or the lease has expired."""
        if token not in self._leases:
            raise PlaneUnavailable("the put took longer than its lease and was given up")
        return self._leases[token]

    def remove(self, token: int) -> None:
        """Release a put's rows; no error if the put has no lease."""
        lease = self._leases.pop(token, None)
        for index in lease.indexes if lease else ():
            writers = self._writers[index]
            writers.discard(token)
            if not writers:
                del self._writers[index]

    def holds(self, index: int) -> bool:
        """Whether a put is writing to the index."""
        now = self._clock()
        for token in list(self._writers.get(index, ())):
            if self._leases[token].expires <= now:
                self.remove(token)
        return index in self._writers

    def count_outside(self, indexes: Container[int]) -> int:
        """Return the number of indexes other than ``indexes`` that puts are writing to."""
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

"""What the clients of one memory plane share, and the planes that this process has open."""

from __future__ import annotations

import threading

from rlconform.backends.memory.partition import Partition
from rlconform.contract import PlaneUnavailable


class Plane:
    """Partitions behind one lock.

    Attributes:
        capacity: Rows that the plane holds at most; None for no limit.
        changed: The lock; notified when a claim may have become possible, or impossible.
        partitions: By id, to be touched under the lock only.
        closed: Whether the owner closed it.
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.changed = threading.Condition()
        self.partitions: dict[str, Partition] = {}
        self.closed = False


_OPEN: list[Plane] = []  # the newest last
_LOCK = threading.Lock()


def start_plane(capacity: int | None) -> Plane:
    """A new plane, to which clients attach from now on."""
    plane = Plane(capacity)
    with _LOCK:
        _OPEN.append(plane)
    return plane


def newest_plane() -> Plane:
    """The open plane that was started last. ``PlaneUnavailable`` if there is none."""
    with _LOCK:
        if not _OPEN:
            raise PlaneUnavailable("no memory plane is open in this process")
        return _OPEN[-1]


def stop_plane(plane: Plane) -> None:
    """Let nobody attach to the plane any more; no error if it was stopped before."""
    with _LOCK:
        if plane in _OPEN:
            _OPEN.remove(plane)

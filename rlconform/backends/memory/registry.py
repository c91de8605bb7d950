"""What the clients of one memory plane share, and the planes that this process has open."""

from __future__ import annotations

import threading

from rlconform.backends.index import Index
from rlconform.contract import PlaneUnavailable


class MemoryPlane:
    """An index behind one lock; a block's payload is the columns itself.

    Attributes:
        changed: The lock; notified when a claim may have become possible, or impossible.
        index: To be touched under the lock only.
        closed: Whether the owner closed it.
    """

    def __init__(self, capacity: int | None) -> None:
        self.changed = threading.Condition()
        self.index = Index(capacity)
        self.closed = False


_OPEN: list[MemoryPlane] = []  # the newest last
_LOCK = threading.Lock()


def start_plane(capacity: int | None) -> MemoryPlane:
    """A new plane of at most ``capacity`` rows, to which clients attach from now on."""
    plane = MemoryPlane(capacity)
    with _LOCK:
        _OPEN.append(plane)
    return plane


def newest_plane() -> MemoryPlane:
    """The open plane that was started last. ``PlaneUnavailable`` if there is none."""
    with _LOCK:
        if not _OPEN:
            raise PlaneUnavailable("no memory plane is open in this process")
        return _OPEN[-1]


def stop_plane(plane: MemoryPlane) -> None:
    """Let nobody attach to the plane any more; no error if it was stopped before."""
    with _LOCK:
        if plane in _OPEN:
            _OPEN.remove(plane)

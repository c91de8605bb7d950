"""``MemoryPlane``: the state that clients of a memory plane share; this process's open planes."""

from __future__ import annotations

import threading

from rlconform.backends.index import Index
from rlconform.contract import PlaneUnavailable


class MemoryPlane:
    """An index behind one lock; a block's payload is its ``ColumnBlock``.

    Attributes:
        changed: The lock; notified when waiting claims should check again.
        index: Used under the lock only.
        closed: Whether the owner closed it.
    """

    def __init__(self, capacity: int | None) -> None:
        self.changed = threading.Condition()
        self.index = Index(capacity)
        self.closed = False


_OPEN: list[MemoryPlane] = []  # the newest last
_LOCK = threading.Lock()


def start_plane(capacity: int | None) -> MemoryPlane:
    """Start a plane of at most ``capacity`` rows; clients attach to it from now on."""
    plane = MemoryPlane(capacity)
    with _LOCK:
        _OPEN.append(plane)
    return plane


def newest_plane() -> MemoryPlane:
    """The newest open plane. ``PlaneUnavailable`` if there is none."""
    with _LOCK:
        if not _OPEN:
            raise PlaneUnavailable("no memory plane is open in this process")
        return _OPEN[-1]


def stop_plane(plane: MemoryPlane) -> None:
    """Remove the plane, so that no client attaches to it. Idempotent."""
    with _LOCK:
        if plane in _OPEN:
            _OPEN.remove(plane)

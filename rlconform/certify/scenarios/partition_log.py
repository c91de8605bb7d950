"""``PartitionLog``: which rows a check put, cleared and claimed, and so which rows are ready.

A check that does not test claims requests exactly as many rows as are ready: only CLAIM-04 judges
whether a plane serves a claim of more rows than are ready.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable


class PartitionLog:
    """The rows of one partition as the check knows them, shared by its clients and threads."""

    def __init__(self) -> None:
        self.ids: set[str] = set()  # every id that the check used, for the clean-up
        self._produced: dict[str, set[str]] = {}  # fields by id
        self._claimed: dict[str, set[str]] = defaultdict(set)  # ids by task
        self._lock = threading.Lock()

    def touch(self, ids: Iterable[object]) -> None:
        """Record ids that are about to be put, as even a failing put may leave rows."""
        with self._lock:
            self.ids.update(i for i in ids if isinstance(i, str))

    def put(self, ids: Iterable[str], fields: Iterable[str]) -> None:
        """Record a put that returned."""
        names = set(fields)
        with self._lock:
            for sample_id in ids:
                self._produced.setdefault(sample_id, set()).update(names)

    def clear(self, ids: Iterable[str] | None) -> None:
        """Record a clear that returned; None clears every row, as one process put them all."""
        with self._lock:
            cleared = set(self._produced) if ids is None else set(ids)
            for sample_id in cleared:
                self._produced.pop(sample_id, None)
            for claimed in self._claimed.values():
                claimed.difference_update(cleared)

    def claim(self, task: str, ids: Iterable[str]) -> None:
        """Record which rows a claim returned."""
        with self._lock:
            self._claimed[task].update(ids)

    def ready(self, task: str, fields: Iterable[str]) -> int:
        """Count the rows that have all these fields and that the task has not claimed."""
        needed = set(fields)
        with self._lock:
            produced = {i for i, names in self._produced.items() if names >= needed}
            return len(produced - self._claimed[task])

    def has_others(self, ids: Iterable[str]) -> bool:
        """Whether the check used rows other than ``ids``, which a plane could return in error."""
        with self._lock:
            return not self.ids <= set(ids)

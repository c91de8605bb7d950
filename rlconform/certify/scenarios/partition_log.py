"""``PartitionLog``: which rows a check put, cleared and claimed, and so which are ready.

A check that is not about claims asks for exactly as many rows as are ready: only CLAIM-04 judges
whether a plane serves a claim of more rows than that.
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
        """Note ids that are about to be put, even if the put fails."""
        with self._lock:
            self.ids.update(i for i in ids if isinstance(i, str))

    def put(self, ids: Iterable[str], fields: Iterable[str]) -> None:
        """Note a put that returned."""
        names = set(fields)
        with self._lock:
            for sample_id in ids:
                self._produced.setdefault(sample_id, set()).update(names)

    def clear(self, ids: Iterable[str] | None) -> None:
        """Note a clear that returned; None clears every row, as one process put them all."""
        with self._lock:
            cleared = set(self._produced) if ids is None else set(ids)
            for sample_id in cleared:
                self._produced.pop(sample_id, None)
            for claimed in self._claimed.values():
                claimed.difference_update(cleared)

    def claim(self, task: str, ids: Iterable[str]) -> None:
        """Note which rows a claim returned."""
        with self._lock:
            self._claimed[task].update(ids)

    def ready(self, task: str, fields: Iterable[str]) -> int:
        """How many rows have all these fields and were not claimed by the task."""
        needed = set(fields)
        with self._lock:
            produced = {i for i, names in self._produced.items() if names >= needed}
            return len(produced - self._claimed[task])

    def has_others(self, ids: Iterable[str]) -> bool:
        """Whether the check used other rows, which a plane could return in error."""
        with self._lock:
            return not self.ids <= set(ids)

"""``ClosedIds``: how each id ended, in 24 to 48 bytes per id, for millions of ids."""

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import NamedTuple

from rlconform.check_run.anomaly import RecordKey
from rlconform.events.schema import EventSource, Record

_MASK = (1 << 64) - 1
_SEQ_BITS, _SOURCE_BITS = 44, 16
_SEQ_MASK, _SOURCE_MASK = (1 << _SEQ_BITS) - 1, (1 << _SOURCE_BITS) - 1
#: The last number of a source stands for all further ones.
_MOST_SOURCES = _SOURCE_MASK
_REMOVED = 1  # the key of a slot whose id was removed
_FIRST_SIZE = 1 << 10


class Fate(IntEnum):
    """How an id ended."""

    TRAINED = 1
    DROPPED = 2
    CLEARED = 3  # trained or dropped, and deleted since


class ClosedId(NamedTuple):
    """How an id ended, and the record that ended it (None if there are too many processes)."""

    fate: Fate
    ended_by: RecordKey | None


class ClosedIds:
    """A hash table of 64-bit digests of ids, each with its fate and the place of one record.

    Two of ten million ids have the same digest with a probability of 3 in a million.
    """

    def __init__(self) -> None:
        self._mask = _FIRST_SIZE - 1
        self._keys = array("Q", bytes(8 * _FIRST_SIZE))
        self._values = array("Q", bytes(8 * _FIRST_SIZE))
        self._used = 0  # slots that are not empty, those of removed ids too
        self._sources: dict[EventSource, int] = {}
        self._names: list[EventSource] = []

    def __len__(self) -> int:
        return self._used

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return 16 * len(self._keys)

    def add(self, name: str, fate: Fate, record: Record) -> int:
        """Remember how an id ended, and return its digest, for ``remove``."""
        if 3 * self._used > 2 * self._mask:
            self._grow()
        key = _digest(name)
        slot = self._find(key)
        if not self._keys[slot]:
            self._used += 1
        self._keys[slot] = key
        value = int(fate) << _SOURCE_BITS | self._number_of(record.source)
        self._values[slot] = value << _SEQ_BITS | (record.seq & _SEQ_MASK)
        return key

    def get(self, name: str) -> ClosedId | None:
        """Return how an id ended; None if it is not closed."""
        slot = self._find(_digest(name))
        if not self._keys[slot]:
            return None
        value = self._values[slot]
        number = value >> _SEQ_BITS & _SOURCE_MASK
        fate = Fate(value >> (_SEQ_BITS + _SOURCE_BITS))
        if number >= len(self._names):
            return ClosedId(fate, None)
        return ClosedId(fate, RecordKey(self._names[number], value & _SEQ_MASK))

    def remove(self, digest: int) -> None:
        """Forget an id."""
        slot = self._find(digest)
        if self._keys[slot]:
            self._keys[slot] = _REMOVED

    def _find(self, key: int) -> int:
        """Return the slot of a key, or the empty slot where it belongs."""
        keys, mask = self._keys, self._mask
        slot = key & mask
        while (there := keys[slot]) and there != key:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        size = 2 * (self._mask + 1)
        self._mask = size - 1
        self._keys, self._values = array("Q", bytes(8 * size)), array("Q", bytes(8 * size))
        self._used = 0
        for key, value in zip(keys, values, strict=True):
            if key > _REMOVED:
                slot = self._find(key)
                self._keys[slot], self._values[slot] = key, value
                self._used += 1

    def _number_of(self, source: EventSource) -> int:
        number = self._sources.get(source)
        if number is None:
            number = len(self._names)
            if number >= _MOST_SOURCES:
                return _MOST_SOURCES
            self._sources[source] = number
            self._names.append(source)
        return number


def _digest(name: str) -> int:
    """Return 64 bits of a name, neither 0 nor ``_REMOVED``; the same within one process."""
    digest = hash(name) & _MASK
    return digest if digest > _REMOVED else digest + 2

"""``RunAnomaly``: what a rule found, with the fewest records that prove it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rlconform.events.schema import EventSource, Record

#: Records that a proof has at most.
LONGEST_PROOF = 10


class Basis(Enum):
    """What a proof rests on, which decides whether a damaged log can still prove it."""

    PRESENCE = "presence"  # the records alone prove it, whatever else happened
    ABSENCE = "absence"  # the log has no record that would explain it


@dataclass(frozen=True, slots=True)
class RecordKey:
    """Names a record that is no longer in memory: its process, its number, and its group."""

    source: EventSource
    seq: int


@dataclass(frozen=True)
class RunAnomaly:
    """Something that a right run can't do."""

    rule: str
    sentence: str  # expected ...; got ...
    impact: str  # what it does to training
    basis: Basis
    proof: tuple[Record | RecordKey, ...]  # in causal order
    group_ids: tuple[str, ...] = ()  # groups concerned


def key_of(record: Record) -> RecordKey:
    """Return the name of a record."""
    return RecordKey(record.source, record.seq)

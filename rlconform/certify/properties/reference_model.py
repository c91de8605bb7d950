"""``PartitionModel``: what one partition must hold after any sequence of calls, as plain dicts.

It is written from the contract alone and shares no code with any plane. The model leaves open
what the contract leaves open: the order of claims, the status of a partition without rows, and
whether the tags of a second put join or replace those of the first (TAG-03 is a SHOULD).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rlconform.certify.properties.call_values import same_tags
from rlconform.contract import Tags
from rlconform.contract.fields import INPUT_LENGTHS

#: "rows" if a read must return the rows, else the reason why it must raise.
Readable = Literal["rows", "unknown", "cleared", "unproduced"]


def group_of(sample_id: str) -> str:
    """Return the uid of an id ``<uid>_g<number>``."""
    return sample_id.rpartition("_g")[0]


@dataclass
class ModelRow:
    """A row between its first put and its clear."""

    versions: dict[str, int] = field(default_factory=dict)  # the newest of each produced field
    tags: Tags = field(default_factory=dict)  # of the newest put that had tags
    #: Tags of earlier puts; TAG-03 says they should stay, but a plane may drop them.
    older_tags: Tags = field(default_factory=dict)
    claimed_by: set[str] = field(default_factory=set)  # tasks

    def allows(self, tags: Tags) -> bool:
        """Whether a claim may return the row with these tags."""
        known = self.older_tags | self.tags
        right = all(key in known and same_tags(value, known[key]) for key, value in tags.items())
        return right and self.tags.keys() <= tags.keys()


@dataclass
class PartitionModel:
    """The rows of one partition."""

    group_size: int = 1  # claims return whole groups of so many rows
    rows: dict[str, ModelRow] = field(default_factory=dict)  # put and not cleared since
    cleared: Counter[str] = field(default_factory=Counter)  # how often each id was cleared

    def put(
        self,
        ids: Iterable[str],
        fields: Iterable[str],
        version: int,
        tags: Mapping[str, Tags] | None = None,
    ) -> None:
        """Write fields of rows, tags by id, or both."""
        written = dict.fromkeys(fields, version)
        for sample_id in ids:
            row = self.rows.get(sample_id)
            if row is None:
                row = self.rows[sample_id] = ModelRow()
            row.versions.update(written)
            if tags is not None:
                row.older_tags |= row.tags
                row.tags = dict(tags[sample_id])

    def claim(self, task: str, ids: Iterable[str]) -> None:
        """Record that the task claimed these rows, even if it should not have."""
        for sample_id in ids:
            if sample_id in self.rows:
                self.rows[sample_id].claimed_by.add(task)

    def clear(self, ids: Iterable[str] | None) -> None:
        """Drop rows; None drops all rows, as only one process puts rows here."""
        for sample_id in list(self.rows) if ids is None else ids:
            if self.rows.pop(sample_id, None) is not None:
                self.cleared[sample_id] += 1

    def produced(self, sample_id: str, fields: Iterable[str]) -> bool:
        """Whether the row has all these fields."""
        return sample_id in self.rows and self.rows[sample_id].versions.keys() >= set(fields)

    def ready(self, task: str, fields: Collection[str]) -> list[str]:
        """Return the ids of rows that the task may claim."""
        required = set(fields)
        ready = [
            sample_id
            for sample_id, row in self.rows.items()
            if task not in row.claimed_by and row.versions.keys() >= required
        ]
        if self.group_size == 1:
            return ready
        sizes = Counter(map(group_of, ready))
        return [sample_id for sample_id in ready if sizes[group_of(sample_id)] == self.group_size]

    def why_not_ready(self, sample_id: str, task: str, fields: Collection[str]) -> str:
        """Return in words why the task may not claim the row, or "" for a ready row."""
        if sample_id not in self.rows:
            return "cleared" if self.cleared[sample_id] else "never put"
        if not self.produced(sample_id, fields):
            return f"without some of {sorted(fields)}"
        return f"claimed by {task} before" if task in self.rows[sample_id].claimed_by else ""

    def lengths(self, ids: Sequence[str]) -> list[list[Any] | None]:
        """Return the ``sequence_lengths`` that a claim of these rows may have.

        There is more than one answer where a row may have lost an older tag.
        """
        tags = [self.rows[i].older_tags | self.rows[i].tags for i in ids]
        if not tags or not all(INPUT_LENGTHS in each for each in tags):
            return [None]
        newest = all(INPUT_LENGTHS in self.rows[i].tags for i in ids)
        return [[each[INPUT_LENGTHS] for each in tags], *([] if newest else [None])]

    def readable(self, ids: Sequence[str], fields: Collection[str]) -> Readable:
        """Return "rows" if a read must return the rows, else the reason why it must raise."""
        missing = [sample_id for sample_id in ids if sample_id not in self.rows]
        if missing:
            return "cleared" if any(self.cleared[sample_id] for sample_id in missing) else "unknown"
        produced = all(self.produced(sample_id, fields) for sample_id in ids)
        return "rows" if produced else "unproduced"

    def consumed(self, tasks: Iterable[str]) -> bool | None:
        """Return the status due; None without produced rows, as STAT-04 is only a SHOULD."""
        produced = [row for row in self.rows.values() if row.versions]
        return all(row.claimed_by >= set(tasks) for row in produced) if produced else None

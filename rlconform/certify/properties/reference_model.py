"""What the contract says of one partition after any history of calls, as plain dicts.

Written from the contract alone: it shares nothing with any plane. Where the contract leaves an
answer open, so does the model: the order of claims, a status that speaks of no rows, and whether
the tags of a second put join those of the first (TAG-03 is a SHOULD) or take their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlconform.contract import Tags

#: Why a read must be refused, or "rows" where it must give them.
Readable = Literal["rows", "unknown", "cleared", "unproduced"]


@dataclass
class ModelRow:
    """A row between its first put and its clear.

    Attributes:
        versions: Newest version of each field that was produced.
        tags: What its newest tags say.
        older_tags: What earlier tags said beside that; there by TAG-03, or gone.
        claimed_by: Tasks that it was handed to.
    """

    versions: dict[str, int] = field(default_factory=dict)
    tags: Tags = field(default_factory=dict)
    older_tags: Tags = field(default_factory=dict)
    claimed_by: set[str] = field(default_factory=set)

    def may_carry(self, came: Tags) -> bool:
        """Whether a claim may hand the row out with these tags."""
        newest = all(key in came and came[key] == value for key, value in self.tags.items())
        return newest and came.items() <= (self.older_tags | self.tags).items()


@dataclass
class PartitionModel:
    """One partition.

    Attributes:
        rows: The rows that were put and not cleared since.
        lives: How often each id was cleared.
    """

    rows: dict[str, ModelRow] = field(default_factory=dict)
    lives: Counter[str] = field(default_factory=Counter)

    def put(
        self,
        ids: Iterable[str],
        fields: Iterable[str],
        version: int,
        tags: Mapping[str, Tags] | None = None,
    ) -> None:
        """Fields, tags by id, or both are written."""
        names = list(fields)
        for sample_id in ids:
            row = self.rows.setdefault(sample_id, ModelRow())
            row.versions |= dict.fromkeys(names, version)
            if tags is not None:
                row.older_tags |= row.tags
                row.tags = dict(tags[sample_id])

    def claim(self, task: str, ids: Iterable[str]) -> None:
        """The task was handed these rows, rightly or not."""
        for sample_id in ids:
            if sample_id in self.rows:
                self.rows[sample_id].claimed_by.add(task)

    def clear(self, ids: Iterable[str] | None) -> None:
        """Rows are dropped; with None all, as one process puts them all here."""
        for sample_id in list(self.rows) if ids is None else ids:
            if self.rows.pop(sample_id, None) is not None:
                self.lives[sample_id] += 1

    def produced(self, sample_id: str, fields: Iterable[str]) -> bool:
        """Whether the row has all these fields."""
        return sample_id in self.rows and self.rows[sample_id].versions.keys() >= set(fields)

    def ready(self, task: str, fields: Collection[str]) -> list[str]:
        """Ids that the task may be handed."""
        return [
            sample_id
            for sample_id, row in self.rows.items()
            if self.produced(sample_id, fields) and task not in row.claimed_by
        ]

    def why_not_ready(self, sample_id: str, task: str, fields: Collection[str]) -> str:
        """Why the task may not be handed the row, in words; "" where it may."""
        if sample_id not in self.rows:
            return "cleared" if self.lives[sample_id] else "never put"
        if not self.produced(sample_id, fields):
            return f"without some of {sorted(fields)}"
        return f"claimed by {task} before" if task in self.rows[sample_id].claimed_by else ""

    def readable(self, ids: Sequence[str], fields: Collection[str]) -> Readable:
        """Whether a read gives the rows; if not, what each of the others is matters less."""
        gone = [sample_id for sample_id in ids if sample_id not in self.rows]
        if gone:
            return "cleared" if any(self.lives[sample_id] for sample_id in gone) else "unknown"
        produced = all(self.produced(sample_id, fields) for sample_id in ids)
        return "rows" if produced else "unproduced"

    def consumed(self, tasks: Iterable[str]) -> bool | None:
        """The status; None where no produced row is left, of which the contract says too little.

        Where nothing was ever produced False is due, but only as a SHOULD (STAT-04).
        """
        produced = [row for row in self.rows.values() if row.versions]
        return all(row.claimed_by >= set(tasks) for row in produced) if produced else None

"""The state of a plane without its values, for checkpoints; controllers load it without torch."""

from __future__ import annotations

from dataclasses import dataclass

from rlconform.contract import Tags


@dataclass(frozen=True, slots=True)
class SavedRow:
    """One sample, without its values."""

    sample_id: str
    fields: list[str]
    tags: Tags
    claimed_by: list[str]  # tasks
    group: tuple[str | None, int] | None  # a prompt's uid, if the id has one; number of its group


@dataclass(frozen=True, slots=True)
class SavedPartition:
    """One partition, without its values."""

    partition_id: str
    tasks: list[str]
    group_size: int
    ever_produced: bool  # since the partition was last registered empty
    next_ungrouped: int  # rows so far whose ids name no group
    rows: list[SavedRow]  # the oldest first

"""The state of a plane without its values, for checkpoints.

This module imports no torch, because controller processes that use it import none.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlconform.contract import Tags


@dataclass(frozen=True, slots=True)
class SavedRow:
    """One sample, without its values.

    Attributes:
        sample_id: Its name.
        fields: The produced fields.
        tags: Its tags.
        claimed_by: The tasks that claimed it.
        group: A prompt's uid, None for a row whose id has none, and the number of its group.
    """

    sample_id: str
    fields: list[str]
    tags: Tags
    claimed_by: list[str]
    group: tuple[str | None, int] | None


@dataclass(frozen=True, slots=True)
class SavedPartition:
    """One partition, without its values.

    Attributes:
        partition_id: Its name.
        tasks: Its registered tasks.
        group_size: Rows of a group.
        ever_produced: Whether a field was put since it was last registered empty.
        next_ungrouped: Number of rows so far whose ids name no group.
        rows: Its rows, the oldest first.
    """

    partition_id: str
    tasks: list[str]
    group_size: int
    ever_produced: bool
    next_ungrouped: int
    rows: list[SavedRow]

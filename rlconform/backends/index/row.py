"""``IndexRow``: the index's record of one sample; ids that name the group of a sample."""

from __future__ import annotations

import re

from rlconform.backends.index.block import Block, Names
from rlconform.contract import Tags

NO_NAMES: Names = frozenset()

#: A prompt's uid and the number of its group of G generations; no uid for rows grouped by age.
GroupKey = tuple[str | None, int]

#: A block with fields of a row, the row's place in it, and the fields whose newest value it has.
Part = tuple[Block, int, Names]

_GENERATION = re.compile(r"(?P<uid>.*)_g(?P<index>0|[1-9][0-9]{0,17})", re.DOTALL)


class IndexRow:
    """One sample.

    Attributes:
        sample_id: Its name.
        age: Its unique place in the order in which the partition's rows were created.
        group: The group that it is claimed with; None in a partition without groups.
        writer: The process that put its first fields, or its first tags if it has no field.
        fields: The produced fields.
        parts: The blocks with these fields; each field is in one part.
        tags: Its tags.
        claimed_by: The tasks that claimed it.
    """

    __slots__ = ("age", "claimed_by", "fields", "group", "parts", "sample_id", "tags", "writer")

    def __init__(self, sample_id: str, age: int, writer: str, fields: Names = NO_NAMES) -> None:
        self.sample_id = sample_id
        self.age = age
        self.group: GroupKey | None = None
        self.writer = writer
        self.fields = fields
        self.parts: list[Part] = []
        self.tags: Tags = {}
        self.claimed_by = NO_NAMES


def generation_of(sample_id: str) -> tuple[str, int] | None:
    """The uid and index of ``<uid>_g<index>``, split at the last ``_g``; None for other ids.

    Leading zeros are not accepted, so no two ids name the same generation.
    """
    match = _GENERATION.fullmatch(sample_id)
    return None if match is None else (match["uid"], int(match["index"]))


def group_of(sample_id: str, group_size: int, ungrouped: int) -> GroupKey:
    """The group of a new row: that of its generation, or of consecutive rows without a uid.

    ``ungrouped`` is the number of rows without a uid before this one.
    """
    uid, place = generation_of(sample_id) or (None, ungrouped)
    return uid, place // group_size

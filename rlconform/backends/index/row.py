"""``IndexRow``: the index's record of one sample, and the group that its id names."""

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
    """The record of one sample."""

    __slots__ = ("age", "claimed_by", "fields", "group", "parts", "sample_id", "tags", "writer")

    def __init__(self, sample_id: str, age: int, writer: str, fields: Names = NO_NAMES) -> None:
        self.sample_id = sample_id
        self.age = age  # its unique place in the order in which the partition's rows were created
        self.group: GroupKey | None = None  # None in a partition without groups
        self.writer = writer  # the process that put its first fields; its first tags if it has none
        self.fields = fields  # the produced ones
        self.parts: list[Part] = []  # each produced field is in one part
        self.tags: Tags = {}
        self.claimed_by = NO_NAMES  # tasks


def generation_of(sample_id: str) -> tuple[str, int] | None:
    """Return the uid and index of ``<uid>_g<index>``, split at the last ``_g``; None for other ids.

    Leading zeros are not accepted, so no two ids name the same generation.
    """
    match = _GENERATION.fullmatch(sample_id)
    return None if match is None else (match["uid"], int(match["index"]))


def group_of(sample_id: str, group_size: int, ungrouped: int) -> GroupKey:
    """Return the group of a new row: that of its generation, or of consecutive rows without a uid.

    ``ungrouped`` is the number of rows without a uid before this one.
    """
    uid, place = generation_of(sample_id) or (None, ungrouped)
    return uid, place // group_size

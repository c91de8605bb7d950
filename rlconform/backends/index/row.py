"""``IndexRow``: what the index knows of one sample, and which rows make a group."""

from __future__ import annotations

import re

from rlconform.backends.index.block import Block, Names
from rlconform.contract import Tags

NO_NAMES: Names = frozenset()

#: A prompt's uid and the number of G consecutive generations; no uid for rows grouped by age.
GroupKey = tuple[str | None, int]

#: Where fields of a row lie: a block, the row's place in it, and the fields that are its newest.
Part = tuple[Block, int, Names]

_GENERATION = re.compile(r"(?P<uid>.*)_g(?P<index>0|[1-9][0-9]{0,17})", re.DOTALL)


class IndexRow:
    """One sample.

    Attributes:
        sample_id: Its name.
        age: Its place in the order in which the partition's rows came to be, unique.
        group: The group that it is claimed with; None in a partition without groups.
        writer: The process that put its first fields; while it has none, its first tags.
        fields: The fields that are produced.
        parts: Where they lie; each field in one part.
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

    An index has one spelling, so that no two ids are the same generation.
    """
    match = _GENERATION.fullmatch(sample_id)
    return None if match is None else (match["uid"], int(match["index"]))

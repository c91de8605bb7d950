"""``Row``: one sample of a partition, and the group that it is claimed with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rlconform.backends.memory.cells import Cell
from rlconform.contract import Tags

#: A prompt's uid and the number of G consecutive generations; no uid for rows grouped by age.
GroupKey = tuple[str | None, int]

_GENERATION = re.compile(r"(?P<uid>.*)_g(?P<index>[0-9]{1,18})", re.DOTALL)


@dataclass(slots=True, eq=False)
class Row:
    """One sample.

    Attributes:
        sample_id: Its name.
        age: Its place in the order in which the partition's rows came to be, unique.
        group: The group that it is claimed with.
        cells: Its values by field; a field that isn't there isn't produced.
        tags: Its tags.
        claimed_by: The tasks that claimed it.
    """

    sample_id: str
    age: int
    group: GroupKey
    cells: dict[str, Cell] = field(default_factory=dict)
    tags: Tags = field(default_factory=dict)
    claimed_by: set[str] = field(default_factory=set)


def generation_of(sample_id: str) -> tuple[str, int] | None:
    """The uid and index of ``<uid>_g<index>``, split at the last ``_g``; None for other ids."""
    match = _GENERATION.fullmatch(sample_id)
    return None if match is None else (match["uid"], int(match["index"]))

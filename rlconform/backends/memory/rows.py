"""``Row``: one sample of a partition, the group that it is claimed with, the meta of a claim."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlconform.backends.memory.cells import Cell
from rlconform.contract import KVBatchMeta, Tags
from rlconform.contract.fields import INPUT_LENGTHS

#: A prompt's uid and the number of G consecutive generations; no uid for rows grouped by age.
GroupKey = tuple[str | None, int]

_GENERATION = re.compile(r"(?P<uid>.*)_g(?P<index>0|[1-9][0-9]{0,17})", re.DOTALL)


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
    """The uid and index of ``<uid>_g<index>``, split at the last ``_g``; None for other ids.

    An index has one spelling, so that no two ids are the same generation.
    """
    match = _GENERATION.fullmatch(sample_id)
    return None if match is None else (match["uid"], int(match["index"]))


def claimed_meta(
    partition_id: str, task: str, fields: list[str], rows: Sequence[Row]
) -> KVBatchMeta:
    """The meta of claimed rows, with copies of their tags."""
    return KVBatchMeta(
        partition_id,
        task,
        [row.sample_id for row in rows],
        fields=fields,
        sequence_lengths=_lengths(rows),
        tags=[dict(row.tags) for row in rows],
    )


def _lengths(rows: Sequence[Row]) -> list[int] | None:
    """The rows' ``input_lengths`` tags; None unless every row carries an integer."""
    lengths = [row.tags.get(INPUT_LENGTHS) for row in rows]
    integers = [
        int(n) for n in lengths if isinstance(n, int | np.integer) and not isinstance(n, bool)
    ]
    return integers if len(integers) == len(rows) else None

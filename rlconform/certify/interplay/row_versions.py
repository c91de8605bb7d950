"""``RowVersions``: what the rows of one scenario hold, by field and by the number of their put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor

from rlconform.certify.assertions.expect import expect_column, expect_objects
from rlconform.certify.scenarios.labeled_rows import labeled_row
from rlconform.wire import object_array, stack_or_nest

#: Rows that exist from the beginning: two groups. The rest is put later.
ROWS = ("u_g0", "u_g1", "v_g0", "v_g1")
MORE = ("w_g0", "w_g1")
IDS = (*ROWS, *MORE)
#: A field of labels, one of numbers, one of objects; one of labels that is put later, and one that
#: only another schema has.
LABELS, NUMBERS, OBJECTS, LATER, EXTRA = "x", "y", "log", "z", "extra"

#: In pairs of one size: the bytes of one can be taken for the other.
DTYPES = (torch.int64, torch.float64, torch.bfloat16, torch.float16)

#: Bytes of a wide row, and of one that makes a put larger than a megabyte.
WIDE, LARGE = 400, 400_000

#: No label is longer, in bytes.
_LABELLED = 200


class _Put(NamedTuple):
    width: int
    dtype: torch.dtype


@dataclass
class RowVersions:
    """The values of each put.

    A value shows its partition, row, field and put, so a wrong one shows where it belongs.
    Jagged rows of one put have lengths that the next put gives to other rows: four of them always
    have as many bytes in all.

    ``texts``: objects are texts, and two rows of a put have the same one. ``alike``: rows of one
    width begin alike, as those with one prompt do: their labels are at their ends.
    """

    jagged: bool
    dtype: int
    texts: bool = False
    alike: bool = False
    _puts: list[_Put] = field(default_factory=lambda: [_Put(0, torch.int64)])

    def new_version(self, width: int = 0) -> int:
        """Return the number of the next put, whose labels have at least ``width`` bytes."""
        self._puts.append(_Put(width, DTYPES[self.dtype % len(DTYPES)]))
        return len(self._puts) - 1

    def column(self, partition_id: str, ids: Sequence[str], name: str, version: int) -> Any:
        """Return the column to put."""
        if name == OBJECTS:
            return object_array([self._object(partition_id, i, version) for i in ids])
        return stack_or_nest([self._row(partition_id, i, name, version) for i in ids])

    def expect(
        self, batch: TensorDictBase, partition_id: str, name: str, put: Sequence[tuple[str, int]]
    ) -> None:
        """Expect a column of these sample ids, each as in this put."""
        if name == OBJECTS:
            expect_objects(batch, name, [self._object(partition_id, *each) for each in put])
        else:
            rows = [self._row(partition_id, i, name, version) for i, version in put]
            expect_column(batch, name, rows)

    def _object(self, partition_id: str, sample_id: str, version: int) -> Any:
        if self.texts:
            return f"{partition_id}|{IDS.index(sample_id) // 2}|v{version}"
        return [{"content": f"{partition_id}|{sample_id}|v{version}"}]

    def _row(self, partition_id: str, sample_id: str, name: str, version: int) -> Tensor:
        number, put = IDS.index(sample_id), self._puts[version]
        if name == NUMBERS:  # small enough for every dtype
            return torch.tensor(16 * number + version, dtype=put.dtype)
        more = 4 * ((number + version) % len(ROWS)) if self.jagged else 0
        width = max(put.width, WIDE) + more if self.jagged else put.width
        row = labeled_row(partition_id, sample_id, name, version, width)
        return row.roll(-_LABELLED) if self.alike and len(row) > _LABELLED else row

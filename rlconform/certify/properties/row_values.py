"""``RowValues``: what the rows of one example hold, so that a wrong row shows where it belongs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from rlconform.certify.assertions.expect import expect_column, expect_objects
from rlconform.certify.properties.call_values import ALIKE, FIELDS, Universe
from rlconform.certify.scenarios.labeled_rows import labeled_row
from rlconform.wire import object_array, stack_or_nest


@dataclass
class RowValues:
    """Values by partition, sample id, field and version, which is the number of the put."""

    universe: Universe = field(default_factory=Universe)
    _widths: list[int] = field(default_factory=lambda: [0])  # of rows, by version
    _numbers: dict[str, int] = field(default_factory=dict)  # of rows, by sample id

    def new_version(self, width: int) -> int:
        """Return the version of the next put, whose labels have at least ``width`` bytes."""
        self._widths.append(width)
        return len(self._widths) - 1

    def column(self, partition_id: str, ids: Sequence[str], name: str, version: int) -> Any:
        """Return the column to put."""
        if self._are_objects(name):
            return object_array([self._object(partition_id, i, version) for i in ids])
        return stack_or_nest([self._row(partition_id, i, name, version) for i in ids])

    def expect(
        self, batch: TensorDictBase, partition_id: str, name: str, put: Sequence[tuple[str, int]]
    ) -> None:
        """Expect a column of these sample ids, each in this version."""
        if self._are_objects(name):
            expect_objects(batch, name, [self._object(partition_id, *each) for each in put])
        else:
            rows = [self._row(partition_id, i, name, version) for i, version in put]
            expect_column(batch, name, rows)

    def _are_objects(self, name: str) -> bool:
        return name == FIELDS[1] and self.universe.layout == "objects"

    def _number(self, sample_id: str) -> int:
        """Return the number of a row, which an id has in all puts."""
        return self._numbers.setdefault(sample_id, len(self._numbers))

    def _object(self, partition_id: str, sample_id: str, version: int) -> Any:
        """Return an object: one that shows row and put, or one of a few that many rows have."""
        one = ALIKE[(self._number(sample_id) + version) % len(ALIKE)]
        return {"one": one} if version % 2 else [f"{partition_id}|{sample_id}|v{version}", one]

    def _row(self, partition_id: str, sample_id: str, name: str, version: int) -> Tensor:
        """Return a row of a tensor field: its label, or the number of row and put."""
        number, width = self._number(sample_id), self._widths[version]
        if name == FIELDS[1] and self.universe.layout == "numbers":
            return torch.tensor(1000 * number + version)
        more = 4 * ((number + version) % 3) if self.universe.uneven and width else 0
        return labeled_row(partition_id, sample_id, name, version, width + more)

"""Defects of forms that a plane chooses for columns, rows or deadlines of a certain kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import is_dense, mapped, with_objects
from rlconform.mutants.memory.helpers import claim_mutant, engine_mutant, find_rows, put_mutant
from rlconform.mutants.types import Claimed, Ids, MaybeBatch, MaybeTags


@engine_mutant("PUT-13", evidence="row ", may_fail="PUT-01 PUT-11 PUT-12", interplay=False)
class FlagsWrittenByWholeBytes(MemoryEngine):
    """Packs the flags of eight rows into a byte, and an overwrite clears the others of the byte."""

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        for name in () if fields is None else map(str, list(fields.keys())):
            column = fields.get(name) if isinstance(fields, TensorDict) else None
            if isinstance(column, Tensor) and column.dtype is torch.bool and column.dim() == 1:
                self._clear_beside(partition_id, ids, name)

    def _clear_beside(self, partition_id: str, ids: Ids, name: str) -> None:
        rows = [row for row in find_rows(self, partition_id, None) if name in row.fields]
        put = {*ids}
        written = {n // 8 for n, row in enumerate(rows) if row.sample_id in put}
        held = [row.sample_id for n, row in enumerate(rows) if n // 8 in written]
        beside = [sample_id for sample_id in held if sample_id not in put]
        if beside and len(ids) < 8:
            zeros = TensorDict({name: torch.zeros(len(beside), dtype=torch.bool)}, [len(beside)])
            super().put(partition_id, beside, zeros, None)


@put_mutant("PUT-28", evidence="'log'")
def BytesInFixedWidth(put: MethodCall) -> None:
    """Stores a column of bytes at one width, and drops the zero bytes at the end of each value."""

    def fixed(rows: list[Any]) -> list[Any]:
        return np.array(rows).tolist() if all(type(row) is bytes for row in rows) else rows

    put(fields=with_objects(put.fields, fixed))


@put_mutant("PUT-01", evidence="-0.0", may_fail="PUT-04 PUT-05 PUT-13")
def RareValuesStoredWithoutZeros(put: MethodCall) -> None:
    """Stores a long column of which few elements are other than 0 as these, so -0.0 becomes 0."""

    def sparse(column: Tensor) -> Tensor:
        few = is_dense(column) and column.is_floating_point() and column[:1].numel() >= 1024
        if not few or 8 * int((column != 0).sum()) > column.numel():
            return column
        return torch.where(column != 0, column, torch.zeros_like(column))

    put(fields=mapped(put.fields, sparse))


@engine_mutant(
    "CLEAR-01", evidence="finished later", may_fail="TAG-01 TAG-02 PUT-17", interplay=False
)
class CompactionDropsBareRows(MemoryEngine):
    """Writes a table anew once 64 rows of it are cleared and fewer are left: those with fields."""

    _cleared = State(dict[str, int])

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        before = len(find_rows(self, partition_id, None))
        super().clear(partition_id, sample_ids)
        rows = find_rows(self, partition_id, None)
        cleared = self._cleared.get(partition_id, 0) + before - len(rows)
        self._cleared[partition_id] = cleared
        if cleared >= 64 and cleared > len(rows):
            self._cleared[partition_id] = 0
            super().clear(partition_id, [row.sample_id for row in rows if not row.fields])


@claim_mutant("CLAIM-05", evidence="an end at once", may_fail="CLAIM-06")
def ClaimDeadlineInMicroseconds(claim: MethodCall) -> Claimed:
    """Counts the time that a claim waits in microseconds, as a signed number of 32 bits."""
    if claim.wait_s is None:
        return claim()
    micros = int(claim.wait_s * 1e6) & 0xFFFFFFFF
    wait_s = (micros - (1 << 32) if micros >> 31 else micros) / 1e6
    if wait_s < 0:
        raise TimeoutError("too few rows")
    return claim(wait_s=wait_s)


@claim_mutant("CLAIM-02", evidence="that no claim returned", may_fail="CLAIM-04 TAG-01")
def ClaimAnswerCutAtEightMebibytes(claim: MethodCall) -> Claimed:
    """Sends the rows of a claim until these are 8 MiB; the rest is claimed too."""
    ids, tags = claim()
    sizes = np.cumsum([len(i) + len(str(row)) for i, row in zip(ids, tags, strict=True)])
    sent = max(1, int(np.searchsorted(sizes, 1 << 23)))
    return ids[:sent], tags[:sent]

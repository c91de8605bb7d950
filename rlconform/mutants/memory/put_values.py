"""Values that are refused, or stored or returned with another dtype, shape or rounding."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.memory.column_helpers import Altering, is_dense
from rlconform.mutants.memory.helpers import engine_mutant, memory_mutant
from rlconform.mutants.types import Ids, Names


@memory_mutant("PUT-01", evidence="row 0 of 'x' =")
class PutScalarsAsFloat32(Altering):
    """Stores float64 scalars, such as rewards, in single precision."""

    def given(self, leaf: Tensor) -> Tensor:
        score = leaf.dtype is torch.float64 and leaf.dim() == 1
        return leaf.float().double() if score else leaf


@memory_mutant("PUT-01", may_fail=("PUT-03", "PUT-04"), evidence="row 0 of 'x' =")
class PutScalarsAsDoubles(Altering):
    """Stores integer scalars as doubles, so values above 2**53 change."""

    def given(self, leaf: Tensor) -> Tensor:
        whole = leaf.dtype is torch.int64 and leaf.dim() == 1
        return leaf.double().long() if whole else leaf


@memory_mutant("PUT-01", may_fail=("WIRE-01",), evidence="of 'x' =")
class GetNegativeZeroBecomesPositive(Altering):
    """Adds float16 rows to zeros when it gathers them, so -0.0 becomes 0.0."""

    def given(self, leaf: Tensor) -> Tensor:
        half = leaf.dtype is torch.float16 and is_dense(leaf)
        return torch.zeros_like(leaf) + leaf if half else leaf


@memory_mutant("PUT-01", evidence="of torch.")
class PutScalarDtypesInferred(Altering):
    """Stores (N,) columns as Python numbers, so torch infers another dtype for small integers."""

    def given(self, leaf: Tensor) -> Tensor:
        whole = not leaf.is_floating_point() and leaf.dtype is not torch.bool
        small = whole and leaf.itemsize < 4
        return torch.tensor(leaf.tolist()) if is_dense(leaf) and leaf.dim() == 1 and small else leaf


@memory_mutant("PUT-02", evidence="of '")
class GetFp8NansMerged(Altering):
    """Converts fp8 to half precision and back, which merges its NaNs into one."""

    def given(self, leaf: Tensor) -> Tensor:
        return leaf.half().to(leaf.dtype) if leaf.dtype is torch.float8_e5m2 else leaf


@memory_mutant("PUT-02", evidence="of '")
class PutComplexInfinityBecomesNan(Altering):
    """Rebuilds complex numbers as ``real + 1j * imag``, so infinities become NaN."""

    def given(self, leaf: Tensor) -> Tensor:
        return leaf.real + 1j * leaf.imag if leaf.is_complex() else leaf


@memory_mutant("PUT-03", "PUT-01", "GET-01", evidence="of get_data:")
class GetDataScalarsInflated(MemoryClient):
    """Returns (N,) columns as (N, 1) from get_data (NR-09)."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        batch = super().get_data(meta, select_fields)
        for name, leaf in list(batch.items()):
            if isinstance(leaf, Tensor) and leaf.dim() == 1:
                batch.set(name, leaf.unsqueeze(1))
        return batch


@engine_mutant("PUT-03", "PUT-01", evidence="of shape (); got (1,)")
class GetScalarsInflatedAcrossPuts(MemoryEngine):
    """Returns (N,) columns as (N, 1) if a read combines several puts."""

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        batch = super().get(partition_id, sample_ids, names)
        for name in names:
            leaf = batch.get(name)
            if isinstance(leaf, Tensor) and not leaf.is_nested and leaf.dim() == 1:
                with self._locked() as index:
                    puts = len(index.locate(partition_id, sample_ids, [name]))
                batch.set(name, leaf.unsqueeze(1) if puts > 1 else leaf)
        return batch


@memory_mutant(
    "PUT-03",
    "GET-01",
    "PAR-01",
    "PUT-01",
    "PUT-08",
    "PUT-21",
    "WIRE-01",
    may_fail=("REG-04", "CLEAR-01", "CLEAR-04"),
    evidence="of shape ()",
)
class PutScalarsInflated(Altering):
    """Returns (N,) columns as (N, 1) (NR-09, OT-04)."""

    def given(self, leaf: Tensor) -> Tensor:
        return leaf.unsqueeze(1) if is_dense(leaf) and leaf.dim() == 1 else leaf


@memory_mutant("PUT-03", evidence="row 0 of 'y' of shape (1,)")
class GetOneByOneSqueezed(Altering):
    """Returns a (1, 1) column as (1,)."""

    def given(self, leaf: Tensor) -> Tensor:
        return leaf.reshape(1) if is_dense(leaf) and leaf.shape == (1, 1) else leaf


@memory_mutant("PUT-04", evidence="of shape (0, 5)")
class PutEmptyShapeForgotten(Altering):
    """Loses the shape of a column without values, so (N, 2, 0) becomes (N, 0)."""

    def stored(self, leaf: Tensor) -> Tensor:
        lost = is_dense(leaf) and leaf.dim() > 2 and not leaf.numel()
        return leaf.new_empty(leaf.shape[0], 0) if lost else leaf


@memory_mutant("PUT-04", evidence="of shape (2, 1)")
class PutLastDimensionOfOneDropped(Altering):
    """Drops the last dimension of (N, S, 1) columns."""

    def given(self, leaf: Tensor) -> Tensor:
        return leaf.squeeze(-1) if is_dense(leaf) and leaf.dim() == 3 else leaf


@memory_mutant("PUT-24", evidence="of torch.uint16")
class GetUint16Widened(Altering):
    """Returns uint16 columns as int32."""

    def given(self, leaf: Tensor) -> Tensor:
        return leaf.int() if leaf.dtype is torch.uint16 else leaf


@memory_mutant("PUT-24", evidence="can't be sent")
class PutWideUnsignedRefused(Altering):
    """Rejects unsigned integers of more than eight bits (SK-05)."""

    def stored(self, leaf: Tensor) -> Tensor:
        if leaf.dtype in {torch.uint16, torch.uint32, torch.uint64}:
            raise TypeError(f"{leaf.dtype} can't be sent")
        return leaf

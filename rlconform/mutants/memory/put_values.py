"""Values that are refused, or stored or returned with another dtype, shape or rounding."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import (
    is_dense,
    mapped,
    put_column_mutant,
    read_column_mutant,
)
from rlconform.mutants.memory.helpers import (
    get_data_mutant,
    get_mutant,
    known_rows,
    put_samples_mutant,
)

#: Numbers of a column whose rows are compared with each other.
ROWS_COMPARED = 1 << 12


@read_column_mutant("PUT-01", evidence="row 0 of 'x' =")
def PutScalarsAsFloat32(leaf: Tensor) -> Tensor:
    """Stores float64 scalars, such as rewards, in single precision."""
    score = leaf.dtype is torch.float64 and leaf.dim() == 1
    return leaf.float().double() if score else leaf


@read_column_mutant("PUT-01", may_fail="PUT-03 PUT-04", evidence="row 0 of 'x' =")
def PutScalarsAsDoubles(leaf: Tensor) -> Tensor:
    """Stores integer scalars as doubles, so values above 2**53 change."""
    whole = leaf.dtype is torch.int64 and leaf.dim() == 1
    return leaf.double().long() if whole else leaf


@read_column_mutant("PUT-01", may_fail="WIRE-01", evidence="of 'x' =")
def GetNegativeZeroBecomesPositive(leaf: Tensor) -> Tensor:
    """Adds float16 rows to zeros when it gathers them, so -0.0 becomes 0.0."""
    half = leaf.dtype is torch.float16 and is_dense(leaf)
    return torch.zeros_like(leaf) + leaf if half else leaf


@read_column_mutant("PUT-01", evidence="of torch.")
def PutScalarDtypesInferred(leaf: Tensor) -> Tensor:
    """Stores (N,) columns as Python numbers, so torch infers another dtype for small integers."""
    whole = not leaf.is_floating_point() and leaf.dtype is not torch.bool
    small = whole and leaf.itemsize < 4
    return torch.tensor(leaf.tolist()) if is_dense(leaf) and leaf.dim() == 1 and small else leaf


@read_column_mutant("PUT-02", evidence="of '")
def GetFp8NansMerged(leaf: Tensor) -> Tensor:
    """Converts fp8 to half precision and back, which merges its NaNs into one."""
    return leaf.half().to(leaf.dtype) if leaf.dtype is torch.float8_e5m2 else leaf


@read_column_mutant("PUT-02", evidence="of '")
def PutComplexInfinityBecomesNan(leaf: Tensor) -> Tensor:
    """Rebuilds complex numbers as ``real + 1j * imag``, so infinities become NaN."""
    return leaf.real + 1j * leaf.imag if leaf.is_complex() else leaf


@get_data_mutant("PUT-03 PUT-01 GET-01", evidence="of get_data:", may_fail="GET-06")
def GetDataScalarsInflated(read: MethodCall) -> TensorDict:
    """Returns (N,) columns as (N, 1) from get_data (NR-09)."""
    return mapped(read(), lambda leaf: leaf.unsqueeze(1) if leaf.dim() == 1 else leaf)


@get_mutant("PUT-03 PUT-01", evidence="of shape (); got (1,)")
def GetScalarsInflatedAcrossPuts(read: MethodCall) -> TensorDict:
    """Returns (N,) columns as (N, 1) if a read combines several puts."""
    batch = read()
    for name in read.names:
        leaf = batch.get(name)
        if isinstance(leaf, Tensor) and not leaf.is_nested and leaf.dim() == 1:
            with read.plane._locked() as index:
                puts = len(index.locate(read.partition_id, read.sample_ids, [name]))
            batch.set(name, leaf.unsqueeze(1) if puts > 1 else leaf)
    return batch


@read_column_mutant(
    "PUT-03 GET-01 PAR-01 PUT-01 PUT-08 PUT-21 WIRE-01",
    may_fail="REG-04 CLEAR-01 CLEAR-04 PUT-13 GET-06",
    evidence="of shape ()",
)
def PutScalarsInflated(leaf: Tensor) -> Tensor:
    """Returns (N,) columns as (N, 1) (NR-09, OT-04)."""
    return leaf.unsqueeze(1) if is_dense(leaf) and leaf.dim() == 1 else leaf


@read_column_mutant("PUT-03", evidence="row 0 of 'y' of shape (1,)")
def GetOneByOneSqueezed(leaf: Tensor) -> Tensor:
    """Returns a (1, 1) column as (1,)."""
    return leaf.reshape(1) if is_dense(leaf) and leaf.shape == (1, 1) else leaf


@put_column_mutant("PUT-04", evidence="of shape (0, 5)")
def PutEmptyShapeForgotten(leaf: Tensor) -> Tensor:
    """Loses the shape of a column without values, so (N, 2, 0) becomes (N, 0)."""
    lost = is_dense(leaf) and leaf.dim() > 2 and not leaf.numel()
    return leaf.new_empty(leaf.shape[0], 0) if lost else leaf


@read_column_mutant("PUT-04", evidence="of shape (2, 1)", may_fail="PUT-13")
def PutLastDimensionOfOneDropped(leaf: Tensor) -> Tensor:
    """Drops the last dimension of (N, S, 1) columns."""
    return leaf.squeeze(-1) if is_dense(leaf) and leaf.dim() == 3 else leaf


@read_column_mutant("PUT-24", evidence="of torch.uint16")
def GetUint16Widened(leaf: Tensor) -> Tensor:
    """Returns uint16 columns as int32."""
    return leaf.int() if leaf.dtype is torch.uint16 else leaf


@put_column_mutant("PUT-24", evidence="can't be sent")
def PutWideUnsignedRefused(leaf: Tensor) -> Tensor:
    """Rejects unsigned integers of more than eight bits (SK-05)."""
    if leaf.dtype in {torch.uint16, torch.uint32, torch.uint64}:
        raise TypeError(f"{leaf.dtype} can't be sent")
    return leaf


@put_samples_mutant("PUT-01", evidence="row 0 of 'x' =")
def PutTagsOverwriteColumns(put: MethodCall) -> KVBatchMeta:
    """Overwrites a row's scalar if a put of tags alone has a number of the field's name.

    Stores that keep tags and fields as columns of one table do so if both keys are the bare name.
    """
    receipt: KVBatchMeta = put()
    rows = known_rows(put) if put.fields is None else []
    for row, tags in zip(rows, put.tags or [], strict=False):
        for name in row.fields & tags.keys():
            column = put.plane.get_samples([row.sample_id], put.partition_id, [name])[name]
            if column.dim() == 1 and isinstance(tags[name], float):
                fields = TensorDict({name: column.new_tensor([tags[name]])}, batch_size=[1])
                put(sample_ids=[row.sample_id], fields=fields, tags=None)
    return receipt


@put_column_mutant("PUT-01", evidence="of 'x' =")
def PutEqualRowsStoredOnce(leaf: Tensor) -> Tensor:
    """Stores equal rows of floats once and compares them with ``==``, so -0.0 becomes 0.0.

    Stores that find repeated rows in a dict of their numbers do so.
    """
    if not (is_dense(leaf) and leaf.is_floating_point()) or leaf.itemsize < 2 or not leaf.numel():
        return leaf
    if leaf.numel() > ROWS_COMPARED:
        return leaf
    rows: list[tuple[float, ...]] = list(map(tuple, leaf.detach().reshape(len(leaf), -1).tolist()))
    first = {row: n for n, row in reversed(list(enumerate(rows)))}
    return leaf[[first[row] for row in rows]]


@put_column_mutant("PUT-01", evidence="of 'x' =")
def NansLeftOutOfConstantColumn(leaf: Tensor) -> Tensor:
    """Stores one value of a column of scalars if the least and greatest of it are equal.

    Statistics of columnar files leave NaN out, so it becomes the other rows' value.
    """
    if not (is_dense(leaf) and leaf.is_floating_point() and leaf.dim() == 1 and len(leaf) >= 32):
        return leaf
    values = leaf[~leaf.isnan()]
    constant = len(values) > 0 and bool(values[0] != 0) and bool((values == values[0]).all())
    return values[0].expand(len(leaf)).clone() if constant else leaf


@get_mutant("PUT-01", evidence="torch.float32")
def GetScalarsInDefaultDtype(read: MethodCall) -> TensorDict:
    """Gathers scalars of float32 in an empty tensor, whose dtype is torch's default."""
    batch: TensorDict = read()
    for name in read.names:
        leaf = batch.get(name)
        if isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float32 and leaf.dim() == 1:
            gathered = torch.empty(len(leaf))
            if gathered.dtype is not leaf.dtype:
                batch.set(name, gathered.copy_(leaf))
    return batch

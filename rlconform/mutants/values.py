"""Values that come back as others: of another dtype, shape or length, rounded, or refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.index.partition import PartitionIndex
from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants import IMPATIENT, broken
from rlconform.wire.leaves import is_jagged, rows_of

breaks = partial(broken, RIGHT, timeouts=IMPATIENT)


class Altering(MemoryClient):
    """A plane that does something to every dense or jagged tensor on its way in, or out."""

    def stored(self, leaf: Tensor) -> Tensor:
        """What is stored of a tensor."""
        return leaf

    def given(self, leaf: Tensor) -> Tensor:
        """What a read gives of a tensor that is stored."""
        return leaf

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put what is stored of each tensor."""
        kept = mapped(fields, self.stored) if isinstance(fields, TensorDict) else fields
        return super().put_samples(sample_ids, partition_id, kept, tags)

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read what is given of each tensor."""
        return mapped(super().get_samples(sample_ids, partition_id, select_fields), self.given)


def mapped(batch: TensorDict, change: Callable[[Tensor], Tensor]) -> TensorDict:
    """The batch with each dense or jagged tensor changed, and all else as it is."""
    changed = batch.copy()
    for name in map(str, batch.keys()):
        leaf = batch.get(name)
        if isinstance(leaf, Tensor) and (is_jagged(leaf) or is_dense(leaf)):
            changed.set(name, change(leaf))
    return changed


def partitions_of(client: MemoryClient) -> dict[str, PartitionIndex]:
    """The partitions of a client's plane."""
    engine = client._engine
    assert isinstance(engine, MemoryEngine), "the plane is in this process"
    return engine._plane.index._partitions


def held(client: MemoryClient, partition_id: str) -> PartitionIndex:
    """What a client's plane holds of a partition."""
    return partitions_of(client).get(partition_id) or PartitionIndex()


def is_dense(leaf: Tensor) -> bool:
    """Whether the leaf is an ordinary tensor."""
    return leaf.layout is torch.strided and not leaf.is_nested


def jagged(rows: list[Tensor]) -> Tensor:
    """The rows as a jagged column."""
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


@breaks("PUT-01", says="row 0 of 'x' =")
class NarrowsScores(Altering):
    """Keeps one number of a row, such as its reward, in single precision, whatever its dtype."""

    def given(self, leaf: Tensor) -> Tensor:
        """Numbers that were rounded for a while."""
        score = leaf.dtype is torch.float64 and leaf.dim() == 1
        return leaf.float().double() if score else leaf


@breaks("PUT-01", may_fail=("PUT-03", "PUT-04"), says="row 0 of 'x' =")
class CountsInDoubles(Altering):
    """Carries a row's one number as a double, as a table does that has gaps: 2**53 is the end."""

    def given(self, leaf: Tensor) -> Tensor:
        """Whole numbers that were doubles for a while."""
        whole = leaf.dtype is torch.int64 and leaf.dim() == 1
        return leaf.double().long() if whole else leaf


@breaks("PUT-01", may_fail=("WIRE-01",), says="of 'x' =")
class AddsIntoZeros(Altering):
    """Gathers half-precision rows by adding them to zeros, after which no zero is negative."""

    def given(self, leaf: Tensor) -> Tensor:
        """The sum."""
        half = leaf.dtype is torch.float16 and is_dense(leaf)
        return torch.zeros_like(leaf) + leaf if half else leaf


@breaks("PUT-01", says="of torch.")
class ScalarsByValue(Altering):
    """Carries (N,) columns as Python numbers, and lets torch choose their dtype again."""

    def given(self, leaf: Tensor) -> Tensor:
        """A tensor of the values, whole numbers as int64 and others as float32."""
        whole = not leaf.is_floating_point() and leaf.dtype is not torch.bool
        small = whole and leaf.itemsize < 4
        return torch.tensor(leaf.tolist()) if is_dense(leaf) and leaf.dim() == 1 and small else leaf


@breaks("PUT-02", says="of '")
class RoundsFp8(Altering):
    """Gathers fp8 as half precision, for want of a kernel: of its NaNs one is left."""

    def given(self, leaf: Tensor) -> Tensor:
        """The values, once converted there and back."""
        return leaf.half().to(leaf.dtype) if leaf.dtype is torch.float8_e5m2 else leaf


@breaks("PUT-02", says="of '")
class AddsComplexParts(Altering):
    """Puts complex numbers together as ``real + 1j * imag``: infinities turn into NaN."""

    def given(self, leaf: Tensor) -> Tensor:
        """The sum of the parts."""
        return leaf.real + 1j * leaf.imag if leaf.is_complex() else leaf


@breaks(
    "PUT-03",
    "GET-01",
    "PAR-01",
    "PUT-01",
    "PUT-08",
    "PUT-21",
    "WIRE-01",
    may_fail=("REG-04", "CLEAR-01", "CLEAR-04"),
    says="of shape ()",
)
class PromotesFlatColumns(Altering):
    """Gives (N,) columns a dimension more: its storage knows none of one (NR-09, OT-04)."""

    def given(self, leaf: Tensor) -> Tensor:
        """At least two dimensions."""
        return leaf.unsqueeze(1) if is_dense(leaf) and leaf.dim() == 1 else leaf


@breaks("PUT-03", says="row 0 of 'y' of shape (1,)")
class SqueezesOneByOne(Altering):
    """Squeezes before it restores the batch's dimension: of one row of one value it keeps ()."""

    def given(self, leaf: Tensor) -> Tensor:
        """One row, one dimension."""
        return leaf.reshape(1) if is_dense(leaf) and leaf.shape == (1, 1) else leaf


@breaks("PUT-04", says="of shape (0, 5)")
class ForgetsEmptyShapes(Altering):
    """Makes a column without bytes anew, as nothing of it is stored: (N, 2, 0) becomes (N, 0)."""

    def stored(self, leaf: Tensor) -> Tensor:
        """An empty column of two dimensions."""
        lost = is_dense(leaf) and leaf.dim() > 2 and not leaf.numel()
        return leaf.new_empty(leaf.shape[0], 0) if lost else leaf


@breaks("PUT-04", says="of shape (2, 1)")
class DropsLastOne(Altering):
    """Drops a last dimension of one from (N, S, 1), which it takes for one that it has added."""

    def given(self, leaf: Tensor) -> Tensor:
        """One dimension less."""
        return leaf.squeeze(-1) if is_dense(leaf) and leaf.dim() == 3 else leaf


@breaks("PUT-05", says="of 'x' =")
class EvenRowsByFloat(Altering):
    """Takes jagged bfloat16 rows of one length for dense, and stacks those as float32."""

    def stored(self, leaf: Tensor) -> Tensor:
        """Rounded back from float32."""
        if is_dense(leaf) or leaf.dim() > 2 or leaf.dtype is not torch.bfloat16:
            return leaf
        rows = rows_of(leaf)
        even = len(rows) > 1 and len({row.shape for row in rows}) == 1
        return torch.stack(rows).float().bfloat16() if even else leaf


@breaks("PUT-05", "WIRE-01", says="of shape")
class CountsTokensByValue(Altering):
    """Stores jagged rows padded with zeros and finds their ends by value: zeros at the end go."""

    def given(self, leaf: Tensor) -> Tensor:
        """Rows up to their last token that isn't zero."""
        if is_dense(leaf) or leaf.dim() > 2 or leaf.dtype is not torch.int64:
            return leaf
        return jagged([row[: int(row.nonzero()[-1:].sum()) + 1] for row in rows_of(leaf)])


@breaks("PUT-05", says="of shape (70000,)", may_fail=("PUT-09",))
class LengthsInSixteenBits(Altering):
    """Keeps the lengths of rows in 16 bits: a row of 65,536 tokens comes back empty."""

    def stored(self, leaf: Tensor) -> Tensor:
        """Rows as long as their length says."""
        if not is_jagged(leaf):
            return leaf
        return jagged([row[: len(row) % 2**16] for row in rows_of(leaf)])


@breaks("PUT-06", says="nothing to store", may_fail=("WIRE-01",))
class RefusesAnEmptyRow(Altering):
    """Refuses a put of one aborted rollout: the store takes no value without bytes."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The column, unless it is one row without tokens."""
        if is_jagged(leaf) and leaf.dim() == 2 and list(map(len, rows_of(leaf))) == [0]:
            raise RuntimeError("nothing to store")
        return leaf


@breaks(
    "PUT-06",
    "PUT-07",
    "PUT-13",
    "WIRE-01",
    "WIRE-02",
    "WIRE-03",
    "WIRE-04",
    may_fail=("PUT-01", "GET-03"),
    says="(0,)",
)
class ClampsLengths(Altering):
    """Makes every row one token long at least, for a kernel that knows no empty ones."""

    def stored(self, leaf: Tensor) -> Tensor:
        """No row without a token."""
        if not is_jagged(leaf):
            return leaf
        return jagged(
            [row if len(row) else row.new_zeros(1, *row.shape[1:]) for row in rows_of(leaf)]
        )


@breaks("PUT-07", "WIRE-01", says="of shape (3, 2, 4)")
class FlattensTokens(Altering):
    """Knows one dimension of a token: (N, j, L, K) becomes (N, j, L * K)."""

    def given(self, leaf: Tensor) -> Tensor:
        """Tokens of at most one dimension."""
        return (
            jagged([row.flatten(1) for row in rows_of(leaf)])
            if leaf.dim() > 3 and is_jagged(leaf)
            else leaf
        )


@breaks("PUT-07", says="of shape (0, 3)")
class NoTokensNoShape(Altering):
    """Learns a token's shape from the first token of a put."""

    def stored(self, leaf: Tensor) -> Tensor:
        """Plain empty rows, where all are empty."""
        if not is_jagged(leaf) or leaf.dim() == 2 or any(len(row) for row in rows_of(leaf)):
            return leaf
        return jagged([row.new_empty(0) for row in rows_of(leaf)])


@breaks("PUT-24", says="of torch.uint16")
class WidensUnsigned(Altering):
    """Reads 16 unsigned bits as 32 signed ones, which hold every value."""

    def given(self, leaf: Tensor) -> Tensor:
        """The same values, wider."""
        return leaf.int() if leaf.dtype is torch.uint16 else leaf


@breaks("PUT-24", says="can't be sent")
class RefusesWideUnsigned(Altering):
    """Has no code for unsigned integers of more than eight bits (SK-05)."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The column, if its dtype has a code."""
        if leaf.dtype in {torch.uint16, torch.uint32, torch.uint64}:
            raise TypeError(f"{leaf.dtype} can't be sent")
        return leaf

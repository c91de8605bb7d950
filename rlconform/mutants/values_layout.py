"""Columns whose memory is not what a plane takes it for, and memory that a plane shares."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rlconform.backends.columns.column_block import extents_of
from rlconform.backends.columns.encode import pack
from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants import IMPATIENT, broken
from rlconform.mutants.values import Altering, held, is_dense
from rlconform.wire.leaves import is_jagged

breaks = partial(broken, RIGHT, timeouts=IMPATIENT)

#: Half a gigabyte has to be sent within it, on a machine that is busy.
PATIENT = replace(IMPATIENT, operation=10, check=60)


@breaks("PUT-08", says="stride")
class RefusesExpandedRows(Altering):
    """Takes a column as a view of its bytes, which one that was expanded doesn't have."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The column, unless its rows are one."""
        if is_dense(leaf) and leaf.dim() == 2 and leaf.stride(0) == 0 and len(leaf) > 1:
            raise RuntimeError("view size is not compatible with input tensor's size and stride")
        return leaf


@breaks("PUT-08", says="of 'x' =")
class IgnoresStrides(Altering):
    """Takes a column's bytes from where they begin, as many as it has, whatever its strides."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The bytes that follow each other."""
        square = is_dense(leaf) and leaf.dim() == 2 and leaf.stride() == (1, len(leaf))
        return leaf.T.reshape(leaf.shape) if square else leaf


@breaks("PUT-08", says="requires grad")
class RefusesGrad(Altering):
    """Hands tensors to numpy, which takes none that requires grad."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The column, unless it requires grad."""
        if leaf.requires_grad:
            raise RuntimeError("can't call numpy() on a tensor that requires grad")
        return leaf


@breaks("PUT-08", says="untouched by a write to row 0")
class OneRowForEqualRows(Altering):
    """Keeps one row of a column whose rows are all equal, and gives it expanded."""

    def given(self, leaf: Tensor) -> Tensor:
        """Equal rows as one."""
        if not is_dense(leaf) or leaf.dim() != 2 or not leaf.numel():
            return leaf
        return leaf[:1].expand_as(leaf) if bool((leaf == leaf[:1]).all()) else leaf


class BorrowingEngine(MemoryEngine):
    """Keeps columns of one layout as the memory that they come in."""

    borrows = "dense"

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, most columns copied."""
        packed = pack(fields, len(sample_ids))
        parcel = {
            name: column
            if column.layout == self.borrows
            else replace(column, values=column.values.copy())
            for name, column in packed.items()
        }
        with self._locked() as index:
            index.commit(partition_id, sample_ids, extents_of(parcel), parcel, tags, "")
            self._plane.changed.notify_all()


class JaggedBorrowingEngine(BorrowingEngine):
    """Keeps the tokens of jagged columns."""

    borrows = "jagged"


@breaks("PUT-09", says="row:", may_fail=("PUT-10",))
class KeepsDenseMemory(MemoryClient):
    """Keeps a dense column as the caller's own memory: what is written to it later shows."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._engine.close()
        self._engine = BorrowingEngine(None, bootstrap)


@breaks("PUT-09", says="row 0 of 'y' =", may_fail=("PUT-10",))
class KeepsTokens(MemoryClient):
    """Copies dense columns and keeps the tokens of jagged ones, for which clone is said to fail."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._engine.close()
        self._engine = JaggedBorrowingEngine(None, bootstrap)


class Remembering(MemoryClient):
    """A plane that gives a batch again, memory and all, until the partition is written to."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._batches: dict[tuple[str, ...], TensorDict] = {}

    def remembers(self, batch: TensorDict) -> bool:
        """Whether a batch is worth remembering."""
        raise NotImplementedError

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read, or give what was read before."""
        key = (str(partition_id), *map(str, sample_ids or ()), "|", *map(str, select_fields or ()))
        if key in self._batches:
            return self._batches[key].copy()
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if self.remembers(batch):
            self._batches[key] = batch.copy()
        return batch

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Put, and forget what was read."""
        self._batches.clear()
        return super().put_samples(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        """Clear, and forget what was read."""
        self._batches.clear()
        super().clear_samples(*args, **kwargs)


@breaks("PUT-09", "PUT-08", says="row 0 of 'x' =")
class GivesItsTokens(Remembering):
    """Remembers jagged columns that were read, without a copy: a reader writes into the next."""

    def remembers(self, batch: TensorDict) -> bool:
        """Batches of jagged columns alone."""
        leaves = [batch.get(str(name)) for name in batch.keys()]  # noqa: SIM118
        return all(isinstance(leaf, Tensor) and is_jagged(leaf) for leaf in leaves)


@breaks("PUT-09", says="tags of the put")
class KeepsTagDicts(MemoryClient):
    """Keeps the dicts of a row's first tags, where it should keep copies."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, and keep the caller's dicts."""
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        rows = held(self, partition_id)._rows
        for sample_id, row in zip(sample_ids, tags, strict=True) if tags else ():
            if rows[sample_id].tags == row:
                rows[sample_id].tags = row
        return receipt


@breaks("PUT-09", says="tags of the put")
class GivesItsTagDicts(MemoryClient):
    """Gives a claim's caller the dicts that it keeps."""

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim, with the plane's own dicts."""
        meta = super().claim_meta(partition_id, *args, **kwargs)
        rows = held(self, partition_id)._rows
        own = [rows[i].tags if i in rows else {} for i in meta.sample_ids]
        return replace(meta, tags=own)


@breaks("PUT-10", says="putting a 1 MiB slice of 512 MiB", timeouts=PATIENT)
class ShipsTheWholeStorage(Altering):
    """Sends a view as pickle does: with all of the storage behind it."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The column, after its storage was copied."""
        if is_dense(leaf):
            leaf.untyped_storage().clone()  # type: ignore[no-untyped-call]
        return leaf


@breaks("PUT-10", says="within 5x", timeouts=PATIENT)
class ShipsTheStorageOfStridedViews(Altering):
    """Sends a column as it lies in memory, and one with gaps as its storage and its strides."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The column, after its storage was copied if it has gaps."""
        if is_dense(leaf) and not leaf.is_contiguous():
            leaf.untyped_storage().clone()  # type: ignore[no-untyped-call]
        return leaf


@breaks("PUT-10", says="within 5x", timeouts=PATIENT)
class ShipsTheStorageOfTokens(Altering):
    """Copies dense columns, and pickles the tokens of jagged ones with all that lies behind."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The column, after the storage of its tokens was copied."""
        if is_jagged(leaf):
            leaf.detach().values().untyped_storage().clone()  # type: ignore[no-untyped-call]
        return leaf


@breaks("PUT-08", says="row")
class ForgetsGaps(Altering):
    """Sends the tokens and offsets of a jagged column, and forgets the lengths that leave gaps."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The column, its padding as part of its rows."""
        plain: Any = leaf.detach()
        if not is_jagged(leaf) or plain.lengths() is None:
            return leaf
        return torch.nested.nested_tensor_from_jagged(plain.values(), plain.offsets())


@breaks("PUT-08", says="requires grad")
class RefusesGradOfTokens(Altering):
    """Detaches dense columns, and hands the tokens of jagged ones to numpy as they are."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The column, unless its tokens require grad."""
        if is_jagged(leaf) and leaf.requires_grad:
            raise RuntimeError("can't call numpy() on a tensor that requires grad")
        return leaf

"""Second puts of a field: the old value stays, or the new one is refused, cast or misread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.column_helpers import is_dense
from rlconform.mutants.memory.helpers import PrefetchesClaims, held, memory_mutant, names_of
from rlconform.mutants.types import AnyBatch, Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire.object_columns import is_object_column


@memory_mutant("PUT-13", evidence="row:")
class GetDataReturnsRowsOfClaimTime(PrefetchesClaims):
    """Fetches the rows with the claim and gives these to get_data, whatever was put since."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        batch = super().get_data(meta, select_fields)
        fetched = self.fetched(meta)
        return batch if fetched is None or select_fields is not None else fetched.clone()


@memory_mutant("PUT-13", evidence="row 0 of 'log' to be")
class PutFirstObjectsKept(MemoryClient):
    """Keeps objects in a table beside the tensors, in which a row's first object stays."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if not isinstance(fields, TensorDict) or not isinstance(partition_id, str):
            return super().put_samples(sample_ids, partition_id, fields, tags)
        rows = held(self, partition_id)._rows
        has = {name for i in sample_ids if i in rows for name in rows[i].fields}
        names = list(map(str, fields.keys()))
        again = [n for n in names if n in has and is_object_column(fields.get(n))]
        if again:
            fields = fields.exclude(*again)
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        return replace(receipt, fields=names)


class KnowingDtypes(MemoryClient):
    """A plane that knows a field's dtype from its first put, and goes by it in later ones."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dtypes: dict[tuple[str, str], torch.dtype] = {}

    def as_known(self, leaf: Tensor, dtype: torch.dtype) -> Tensor:
        """The column as one of the dtype known."""
        raise NotImplementedError

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict) and isinstance(partition_id, str):
            fields = fields.copy()
            for name in map(str, list(fields.keys())):
                leaf = fields.get(name)
                if isinstance(leaf, Tensor) and is_dense(leaf):
                    known = self._dtypes.setdefault((partition_id, name), leaf.dtype)
                    fields.set(name, leaf if leaf.dtype is known else self.as_known(leaf, known))
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-13", evidence="of torch.int32")
class PutBytesReadAsFirstDtype(KnowingDtypes):
    """Reads the bytes of a second put as the dtype of the first (TQ-03)."""

    def as_known(self, leaf: Tensor, dtype: torch.dtype) -> Tensor:
        return leaf.view(dtype) if leaf.dtype.itemsize == dtype.itemsize else leaf


@memory_mutant("PUT-13", "CLEAR-04", evidence="no room for a larger value")
class PutLargerValueRefused(MemoryClient):
    """Gives a row the block that it had, which a larger value doesn't fit (MC-05)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sizes: dict[tuple[str, str, str], int] = {}

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        for name in map(str, fields.keys()) if isinstance(fields, TensorDict) else ():
            leaf = fields.get(name) if fields is not None else None
            if isinstance(leaf, Tensor) and is_dense(leaf) and len(leaf):
                size = max(leaf.nbytes // len(leaf), 1 << 16)
                for sample_id in sample_ids:
                    if size > self._sizes.setdefault((partition_id, sample_id, name), size):
                        raise RuntimeError("no room for a larger value")
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-13", evidence="row:", may_fail=("PUT-02", "PUT-23"))
class PutOneRowOverwriteIgnored(MemoryClient):
    """Takes a put of one row that is there for a repeated one, and leaves it (MC-02)."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        rows = held(self, partition_id)._rows
        row = rows.get(sample_ids[0]) if len(sample_ids) == 1 else None
        names = set(map(str, fields.keys())) if isinstance(fields, TensorDict) else set()
        if row and names and names <= row.fields:
            return super().put_samples(sample_ids, partition_id, None, tags or [{}])
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-23", evidence="float32")
class PutOverwritesCast(MemoryClient):
    """Refuses new rows of another dtype, and casts what overwrites a row to the dtype it had."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        try:
            return super().put_samples(sample_ids, partition_id, fields, tags)
        except ValueError:
            row = held(self, partition_id)._rows.get(sample_ids[0]) if sample_ids else None
            if fields is None or row is None or not row.fields.issuperset(fields.keys()):
                raise
            known = super().get_samples(
                sample_ids[:1], partition_id, sorted(map(str, fields.keys()))
            )
        like = {name: leaf.to(known.get(name).dtype) for name, leaf in fields.items()}
        cast = TensorDict(like, batch_size=fields.batch_size)
        return super().put_samples(sample_ids, partition_id, cast, tags)


@memory_mutant("PUT-23", evidence="'w' of 'second' not to be readable")
class PutRefusedPartStored(MemoryClient):
    """Stores column by column, and keeps those before the one of another dtype that it refuses."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        try:
            return super().put_samples(sample_ids, partition_id, fields, tags)
        except ValueError as refusal:
            if fields is not None and "must replace all" in str(refusal):
                good = [n for n in names_of(fields) if f"field {n!r}" not in str(refusal)]
                super().put_samples(sample_ids, partition_id, fields.select(*good))
            raise


@memory_mutant("PUT-23", evidence="of torch.float32")
class PutCastToFirstDtype(KnowingDtypes):
    """Casts half of a field's rows to the dtype of the other half, as stacking them would."""

    def as_known(self, leaf: Tensor, dtype: torch.dtype) -> Tensor:
        wider = torch.promote_types(leaf.dtype, dtype) is not dtype
        return leaf.to(dtype) if wider and len(leaf) == 1 else leaf


class QuietEngine(MemoryEngine):
    """An engine whose put tells nobody that it was refused."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        try:
            super().put(partition_id, sample_ids, fields, tags)
        except ValueError:
            return


@memory_mutant("PUT-23", evidence="no sample 'second'")
class PutRefusalReportedAsSuccess(MemoryClient):
    """Reports success for a put that its index refused, over a second dtype (TQ-03)."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._engine.close()
        self._engine = QuietEngine(None, bootstrap)

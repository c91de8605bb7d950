"""Second puts of a field that are ignored, refused, cast or misread."""

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
    """Returns the values at the time of the claim from get_data, not those put later."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        batch = super().get_data(meta, select_fields)
        fetched = self.fetched(meta)
        return batch if fetched is None or select_fields is not None else fetched.clone()


@memory_mutant("PUT-13", evidence="row 0 of 'log' to be")
class PutFirstObjectsKept(MemoryClient):
    """Ignores overwrites of objects: a row's first object stays."""

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
    """A plane that applies a field's dtype from its first put to later puts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dtypes: dict[tuple[str, str], torch.dtype] = {}

    def as_known(self, leaf: Tensor, dtype: torch.dtype) -> Tensor:
        """The column, changed to the known dtype."""
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
    """Reinterprets the bytes of a second put as the dtype of the first (TQ-03)."""

    def as_known(self, leaf: Tensor, dtype: torch.dtype) -> Tensor:
        return leaf.view(dtype) if leaf.dtype.itemsize == dtype.itemsize else leaf


@memory_mutant("PUT-13", "CLEAR-04", evidence="no room for a larger value")
class PutLargerValueRefused(MemoryClient):
    """Refuses to overwrite a value with a larger one (MC-05)."""

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
    """Ignores an overwrite of one row, which it treats as a repeated put (MC-02)."""

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
    """Casts overwrites of another dtype to the old dtype, and refuses only new rows."""

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
    """Stores the other columns of a put that it refuses for a column of another dtype."""

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
    """Casts a one-row put to the dtype of the field's first put, as stacking the rows does."""

    def as_known(self, leaf: Tensor, dtype: torch.dtype) -> Tensor:
        wider = torch.promote_types(leaf.dtype, dtype) is not dtype
        return leaf.to(dtype) if wider and len(leaf) == 1 else leaf


class QuietEngine(MemoryEngine):
    """An engine whose put ignores refusals."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        try:
            super().put(partition_id, sample_ids, fields, tags)
        except ValueError:
            return


@memory_mutant("PUT-23", evidence="no sample 'second'")
class PutRefusalReportedAsSuccess(MemoryClient):
    """Reports success for a put that it refused for a second dtype (TQ-03)."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._engine.close()
        self._engine = QuietEngine(None, bootstrap)

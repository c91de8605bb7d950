"""Second puts of a field: the old value stays, or the new one is refused, cast or misread."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants import IMPATIENT, broken
from rlconform.mutants.values import held, is_dense

breaks = partial(broken, RIGHT, timeouts=IMPATIENT)


class KnowingDtypes(MemoryClient):
    """A plane that knows a field's dtype from its first put, and goes by it in later ones."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dtypes: dict[tuple[str, str], torch.dtype] = {}

    def as_known(self, leaf: Tensor, dtype: torch.dtype) -> Tensor:
        """The column as one of the dtype known."""
        raise NotImplementedError

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put columns as the dtypes that are known."""
        if isinstance(fields, TensorDict) and isinstance(partition_id, str):
            fields = fields.copy()
            for name in map(str, list(fields.keys())):
                leaf = fields.get(name)
                if isinstance(leaf, Tensor) and is_dense(leaf):
                    known = self._dtypes.setdefault((partition_id, name), leaf.dtype)
                    fields.set(name, leaf if leaf.dtype is known else self.as_known(leaf, known))
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-13", says="of torch.int32")
class KeepsTheFirstSchema(KnowingDtypes):
    """Reads the bytes of a second put as the dtype of the first (TQ-03)."""

    def as_known(self, leaf: Tensor, dtype: torch.dtype) -> Tensor:
        """The same bytes, if the sizes fit."""
        return leaf.view(dtype) if leaf.dtype.itemsize == dtype.itemsize else leaf


@breaks("PUT-13", "CLEAR-04", says="no room for a larger value")
class ReusesBlocks(MemoryClient):
    """Gives a row the block that it had, which a larger value doesn't fit (MC-05)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sizes: dict[tuple[str, str, str], int] = {}

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put what fits the blocks, of 64 KiB at least."""
        for name in map(str, fields.keys()) if isinstance(fields, TensorDict) else ():
            leaf = fields.get(name) if fields is not None else None
            if isinstance(leaf, Tensor) and is_dense(leaf) and len(leaf):
                size = max(leaf.nbytes // len(leaf), 1 << 16)
                for sample_id in sample_ids:
                    if size > self._sizes.setdefault((partition_id, sample_id, name), size):
                        raise RuntimeError("no room for a larger value")
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-13", says="row:", may_fail=("PUT-02", "PUT-23"))
class OneRowStays(MemoryClient):
    """Takes a put of one row that is there for a repeated one, and leaves it (MC-02)."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, unless it is one row that has these fields."""
        rows = held(self, partition_id)._rows
        row = rows.get(sample_ids[0]) if len(sample_ids) == 1 else None
        names = set(map(str, fields.keys())) if isinstance(fields, TensorDict) else set()
        if row and names and names <= row.fields:
            return super().put_samples(sample_ids, partition_id, None, tags or [{}])
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-23", says="of torch.float32")
class CastsToTheFirstDtype(KnowingDtypes):
    """Casts half of a field's rows to the dtype of the other half, as stacking them would."""

    def as_known(self, leaf: Tensor, dtype: torch.dtype) -> Tensor:
        """The values as far as the dtype holds them."""
        wider = torch.promote_types(leaf.dtype, dtype) is not dtype
        return leaf.to(dtype) if wider and len(leaf) == 1 else leaf


class QuietEngine(MemoryEngine):
    """An engine whose put tells nobody that it was refused."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, or let it be."""
        try:
            super().put(partition_id, sample_ids, fields, tags)
        except ValueError:
            return


@breaks("PUT-23", says="no sample 'second'")
class ReportsSuccess(MemoryClient):
    """Reports success for a put that its index refused, over a second dtype (TQ-03)."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._engine.close()
        self._engine = QuietEngine(None, bootstrap)


@breaks("PUT-16", says="not to be readable")
class StoresUntilAnIdComesTwice(MemoryClient):
    """Stores row by row, and notices at the last one that its id was there."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put; of rows that name one twice, those before it."""
        if isinstance(sample_ids, list) and len(set(map(str, sample_ids))) < len(sample_ids):
            seen = len(sample_ids) - 1
            part = None if fields is None else fields[:seen]
            super().put_samples(sample_ids[:seen], partition_id, part, tags and tags[:seen])
        return super().put_samples(sample_ids, partition_id, fields, tags)

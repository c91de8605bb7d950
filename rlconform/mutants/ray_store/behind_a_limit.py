"""What a process does not learn of others behind a number of bytes or puts."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.controller import Controller, StoredPut
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names

#: Bytes that a client maps behind what was there when it put last.
MAPPED = 128 << 20


class _CountsBytes(Controller):
    _written = State(int)  # bytes of all puts
    _ends = State(dict[tuple[str, str], int])  # by partition and row, the bytes after its put

    async def count(self, partition_id: str, sample_ids: Ids, size: int) -> int:
        """Count the bytes of a put; return those of all puts."""
        self._written += size
        self._ends |= dict.fromkeys([(partition_id, i) for i in sample_ids], self._written)
        return self._written

    async def ends(self, partition_id: str, sample_ids: Ids) -> list[int]:
        """Return for each row how many bytes had been put once it was put."""
        return [self._ends.get((partition_id, i), 0) for i in sample_ids]


@ray_mutant("GET-10", evidence="row")
class MapNeverGrows(ControllerClient):
    """Reads zeros for rows that lie behind what the process has mapped when it put last."""

    controller_class = _CountsBytes
    _mapped = State(int)

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        size = 0 if fields is None else fields.bytes()
        self._mapped = self._connection.call("count", partition_id, list(sample_ids), size)
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        ends = self._connection.call("ends", partition_id, list(sample_ids))
        behind = [row for row, end in enumerate(ends) if end > self._mapped + MAPPED]
        for leaf in batch.values() if behind else ():
            if isinstance(leaf, torch.Tensor) and not leaf.is_nested:
                leaf[behind] = 0
        return batch


#: Puts after which the controller saves the tags of all rows.
SAVED = 1000


class _SavesTags(Controller):
    _puts = State(int)
    _saved = State(dict[tuple[str, str], Tags])

    def _tags(self) -> dict[tuple[str, str], Tags]:
        index = self._index
        parts = {name: rows_in(index, name, None) for name in index._partitions}
        return {(name, row.sample_id): row.tags for name, rows in parts.items() for row in rows}

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        done = await super().commit(put, columns, reference)
        self._puts += 1
        if self._puts % SAVED == 0:
            self._saved = self._tags()
        return done

    async def stamped(self) -> dict[tuple[str, str], tuple[Tags, Tags]]:
        """Return the saved and the present tags of rows whose tags have changed since."""
        now = self._tags()
        return {
            key: (tags, now[key])
            for key, tags in self._saved.items()
            if key in now and now[key] != tags
        }


@ray_mutant("LIFE-06", evidence="tags of the first claim of a late", may_fail="TAG-01")
class LateClientStartsFromSavedTags(ControllerClient):
    """Attaches with the tags of the last checkpoint, without those that were stamped since."""

    controller_class = _SavesTags

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._stamped = {} if bootstrap else self._connection.call("stamped")

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        for place, sample_id in enumerate(meta.sample_ids):
            saved, then = self._stamped.get((meta.partition_id, sample_id), (None, None))
            if saved is not None and meta.tags and meta.tags[place] == then:
                meta.tags[place] = dict(saved)
        return meta

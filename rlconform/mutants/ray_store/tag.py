"""Tags that another process stamps or has stamped: lost, completed from a copy, or split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, StoredPut
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import controller_mutant, ray_call_mutant, ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags


@ray_mutant("TAG-07", evidence="tags that both processes put", may_fail="TAG-03")
class TagsCompletedFromOwnCopy(RayStoreClient):
    """Sends all tags that the process has put on a row again in each put of tags.

    This undoes what another process has put in the meantime.
    """

    _own = State(dict[tuple[str, str], Tags])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        meta = super().put_samples(sample_ids, partition_id, fields, tags)
        for sample_id, row in zip(sample_ids, tags or [], strict=False):
            own = self._own.setdefault((partition_id, sample_id), {})
            if own:
                super().put_samples([sample_id], partition_id, tags=[{**own, **row}])
            own.update(row)
        return meta

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        _forget(self._own, sample_ids, partition_id)


#: Rows of a claim whose lengths are kept.
KEPT = 32


@ray_mutant("TAG-06", evidence="lengths of the claim for")
class LengthsOfLargeClaimKept(RayStoreClient):
    """Keeps the lengths of rows that a large claim has returned, for the claims of other tasks."""

    _lengths = State(dict[tuple[str, str], int])

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if meta.sequence_lengths is None or meta.size < KEPT:
            return meta
        new = zip(meta.sample_ids, meta.sequence_lengths, strict=True)
        kept = [self._lengths.setdefault((meta.partition_id, i), length) for i, length in new]
        return replace(meta, sequence_lengths=kept)


@ray_mutant(
    "TAG-03", evidence="and it again", may_fail="TAG-01 TAG-02 TAG-05 CLEAR-04 CLEAR-05 REG-03"
)
class StampUnchangedByOwnAccount(RayStoreClient):
    """Sends only the tags that differ from those that the process has sent last for the row."""

    _sent = State(dict[tuple[str, str], dict[str, tuple[type, str]]])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        changed: list[Tags] | None = None if tags is None else []
        for sample_id, row in zip(sample_ids, tags or [], strict=False):
            sent = self._sent.get((partition_id, sample_id), {})
            new = {key: value for key, value in row.items() if sent.get(key) != _brief(value)}
            changed = [*(changed or []), new]
        receipt = super().put_samples(sample_ids, partition_id, fields, changed)
        for sample_id, row in zip(sample_ids, tags or [], strict=False):
            sent = self._sent.setdefault((partition_id, sample_id), {})
            sent.update({key: _brief(value) for key, value in row.items()})
        return receipt

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        _forget(self._sent, sample_ids, partition_id)


def _forget(by_row: dict[tuple[str, str], Any], sample_ids: Ids | None, partition_id: str) -> None:
    """Drop what is kept of the rows that a clear drops; None stands for all of the partition."""
    for key in list(by_row):
        if key[0] == partition_id and (sample_ids is None or key[1] in sample_ids):
            del by_row[key]


def _brief(value: object) -> tuple[type, str]:
    return type(value), repr(value)


@ray_call_mutant(RayStoreClient.put_samples, "TAG-08", evidence="tag", scattered=True)
def AttachedPutDropsOtherTags(put: MethodCall) -> KVBatchMeta:
    """Drops a tag of an attached client's put if the value is no number, text, bool or None."""
    if put.plane._owner or put.tags is None:
        return put()
    plain = (int, float, str, bool, type(None))
    kept = [{key: row[key] for key in row if type(row[key]) in plain} for row in put.tags]
    return put(tags=kept)


@controller_mutant("TAG-01", chance=False, evidence="stamped by another", may_fail="TAG-03 TAG-07")
class TagsOfOthersSetByPath(Controller):
    """Stamps rows of another process tag by tag; a name with a dot is the path of a part."""

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        rows = rows_in(self._index, put.partition_id, put.sample_ids)
        others = {row.sample_id for row in rows if row.writer != put.writer}
        if put.tags is not None:
            stamps = zip(put.sample_ids, put.tags, strict=True)
            tags = [_by_path(tags) if i in others else tags for i, tags in stamps]
            put = replace(put, tags=tags)
        return await super().commit(put, columns, reference)


def _by_path(tags: Tags) -> Tags:
    made: Tags = {}
    for name, value in tags.items():
        first, _, rest = name.partition(".")
        made[first if rest else name] = {rest: value} if rest else value
    return made

"""Tags that are lost, converted, merged wrongly, or treated as fields."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants.memory.helpers import engine_mutant, memory_mutant, rows_in
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeBatch, MaybeTags, Names, Wait


@engine_mutant("TAG-01", evidence="tags of the woken claim")
class TagsMissingAfterBlockingClaim(MemoryEngine):
    """Returns no tags from a claim that had to wait."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        with self._locked() as index:
            ready = index.partition(partition_id).is_ready(task, frozenset(names), rows)
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        return ids, tags if ready or wait_s is None else [{} for _ in ids]


class _ChangesValues(MemoryClient):
    """Stores ``change(value)`` in place of each tag."""

    change: Callable[[Any], Any]

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if tags is not None:
            tags = [{key: self.change(value) for key, value in row.items()} for row in tags]
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("TAG-01", evidence="got {'std': None}")
class TagNanBecomesNone(_ChangesValues):
    """Sends tags as JSON, which has no NaN, so NaN becomes None."""

    @staticmethod
    def change(value: Any) -> Any:
        return None if isinstance(value, float) and math.isnan(value) else value


@memory_mutant("TAG-01", evidence="to carry {'prompt'")
class TagLongTextsTruncated(_ChangesValues):
    """Truncates text tags to 4096 characters, as a database column does."""

    @staticmethod
    def change(value: Any) -> Any:
        return value[:4096] if isinstance(value, str) else value


class _ChangesTags(MemoryEngine):
    """Stores ``kept(partition_id, tags)`` in place of the tags of a put."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags and self.kept(partition_id, tags))

    def kept(self, partition_id: str, tags: list[Tags]) -> list[Tags]:
        """The tags to store."""
        raise NotImplementedError


@engine_mutant("TAG-01", evidence="got {'reward': 1.0}")
class TagIntegersBesideFloatsBecomeFloats(_ChangesTags):
    """Converts integer tags to float if another row of the put has a float under that key."""

    def kept(self, partition_id: str, tags: list[Tags]) -> list[Tags]:
        floats = {key for row in tags for key, value in row.items() if isinstance(value, float)}
        return [
            {k: float(v) if k in floats and type(v) is int else v for k, v in row.items()}
            for row in tags
        ]


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


@engine_mutant("TAG-01", evidence="got {'reward': 0}")
class TagTypeOfFirstPutKept(_ChangesTags):
    """Converts tags to the type of the key's first put, so 0.5 after an integer becomes 0."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._types: dict[tuple[str, str], type] = {}

    def kept(self, partition_id: str, tags: list[Tags]) -> list[Tags]:
        whole = {key for (where, key), kind in self._types.items()
                 if where == partition_id and kind is int}  # fmt: skip
        for row in tags:
            for key, value in row.items():
                self._types.setdefault((partition_id, key), type(value))
        return [
            {k: int(v) if k in whole and _is_finite(v) else v for k, v in row.items()}
            for row in tags
        ]


@engine_mutant("TAG-01", evidence="tags after a put of tags on one row of three")
class TagEqualDictsShared(MemoryEngine):
    """Stores equal tags of a put as one dict, as pickle does for ``[tags] * n``.

    A later put of tags for one row changes the tags of all of them.
    """

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        shared: dict[str, Tags] = {}
        with self._locked() as index:
            old = {r.sample_id: r.tags for r in rows_in(index, partition_id, sample_ids) if r.tags}
            super().put(partition_id, sample_ids, fields, tags)
            for row, new in zip(rows_in(index, partition_id, sample_ids), tags or [], strict=False):
                row.tags = old.get(row.sample_id) or shared.setdefault(repr(new), dict(new))
                row.tags.update(new)


@memory_mutant("TAG-01", evidence="'true': True")
class TagBooleansBecomeIntegers(_ChangesValues):
    """Stores a bool tag as an integer."""

    @staticmethod
    def change(value: Any) -> Any:
        return int(value) if isinstance(value, bool) else value


@memory_mutant("TAG-01", evidence="1e-300")
class TagFloatsInSinglePrecision(_ChangesValues):
    """Stores float tags in single precision."""

    @staticmethod
    def change(value: Any) -> Any:
        return struct.unpack("f", struct.pack("f", value))[0] if type(value) is float else value


@memory_mutant("TAG-01", evidence="to carry", may_fail=("TAG-03",))
class TagIntegersAsDoubles(_ChangesValues):
    """Stores integer tags as doubles, so integers above 2**53 change."""

    @staticmethod
    def change(value: Any) -> Any:
        return int(float(value)) if type(value) is int else value


@memory_mutant("TAG-01", evidence="'none': None")
class TagNoneDropped(MemoryClient):
    """Omits tags whose value is None."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        tags = [{k: v for k, v in row.items() if v is not None} for row in meta.tags or []]
        return replace(meta, tags=tags)


@memory_mutant("TAG-01", "CLEAR-05", evidence="to carry", may_fail=("TAG-03", "CLEAR-04"))
class TagsSortedById(MemoryClient):
    """Returns the ids of a claim by age but their tags sorted by id."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        by_id = dict(zip(meta.sample_ids, meta.tags or [], strict=True))
        return replace(meta, tags=[by_id[sample_id] for sample_id in sorted(by_id)])


@memory_mutant("TAG-01", "TAG-05", "CLEAR-05", evidence="tags where only one row has any")
class TagsStoredAsFields(MemoryClient):
    """Stores tags as columns, so a row without a key gets it with the value None."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        keys = dict.fromkeys(key for row in meta.tags or [] for key in row)
        return replace(meta, tags=[{key: row.get(key) for key in keys} for row in meta.tags or []])


@engine_mutant(
    "TAG-02",
    "PUT-17",
    "CLEAR-05",
    evidence="tags after write-backs",
    may_fail=("TAG-01", "CLEAR-04"),
)
class TagsOmittedClearTags(MemoryEngine):
    """Clears a row's tags in a put without tags, so the weight version is lost."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        if tags is None:
            with self._locked() as index:
                for row in rows_in(index, partition_id, sample_ids):
                    row.tags = {}


@engine_mutant("TAG-02", evidence="tags after write-backs", may_fail=("TAG-01",))
class TagsLostOnOverwrite(MemoryEngine):
    """Drops the tags of a row when a put without tags overwrites a field."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        names = set() if fields is None else set(map(str, fields.keys()))
        with self._locked() as index:
            known = rows_in(index, partition_id, sample_ids)
            old = [row for row in known if row.fields & names]
        super().put(partition_id, sample_ids, fields, tags)
        for row in old if tags is None else []:
            row.tags = {}


class _Stamps(MemoryEngine):
    """Stores ``stamped(old, new)`` when a put has tags for a row."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        with self._locked() as index:
            before = {r.sample_id: r.tags for r in rows_in(index, partition_id, sample_ids)}
        super().put(partition_id, sample_ids, fields, tags)
        if tags is not None and self.applies(fields):
            new = dict(zip(sample_ids, tags, strict=True))
            with self._locked() as index:
                for row in rows_in(index, partition_id, before):
                    row.tags = self.stamped(before[row.sample_id], new[row.sample_id])

    def applies(self, fields: AnyBatch) -> bool:
        """Whether to do so for a put with these fields."""
        return True

    def stamped(self, old: Tags, new: Tags) -> Tags:
        """The row's tags after the put."""
        return dict(new)


@engine_mutant("TAG-03", evidence="merged tags")
class TagsReplacedByEveryPut(_Stamps):
    """Replaces a row's tags in each put of tags instead of merging, so earlier keys are lost."""


@engine_mutant("TAG-03", evidence="merged tags")
class TagsReplacedByPutsWithFields(_Stamps):
    """Replaces a row's tags, not merges them, in a put that has both fields and tags."""

    def applies(self, fields: AnyBatch) -> bool:
        return fields is not None


@engine_mutant("TAG-03", evidence="merged tags", may_fail=("TAG-01",))
class TagFirstValueKept(_Stamps):
    """Adds new tag keys, but keeps the old value of a key that the row has."""

    def stamped(self, old: Tags, new: Tags) -> Tags:
        return {**new, **old}


@engine_mutant("TAG-05", evidence="tags after the clear", may_fail=("CLEAR-04",))
class TagsSurviveClear(MemoryEngine):
    """Keeps the tags of cleared rows, so a row put again without tags has the old ones."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._left: dict[tuple[str, str], Tags] = {}

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        left = [self._left.pop((partition_id, sample_id), {}) for sample_id in sample_ids]
        super().put(partition_id, sample_ids, fields, left if tags is None and any(left) else tags)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                if row.fields:
                    self._left[partition_id, row.sample_id] = row.tags
        super().clear(partition_id, sample_ids)

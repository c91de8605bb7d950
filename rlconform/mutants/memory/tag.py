"""Tags that are lost, converted, merged wrongly, or treated as fields."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants.call import MethodCall, State, applied
from rlconform.mutants.memory.helpers import (
    are_ready,
    claim_meta_mutant,
    claim_mutant,
    engine_mutant,
    find_rows,
    known_rows,
    names_of,
    put_mutant,
    put_samples_mutant,
)
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeTags


@claim_mutant("TAG-01", evidence="tags of the woken claim")
def TagsMissingAfterBlockingClaim(claim: MethodCall) -> Claimed:
    """Returns no tags from a claim that had to wait."""
    ready = are_ready(claim, claim.rows)
    ids, tags = claim()
    return ids, tags if ready or claim.wait_s is None else [{} for _ in ids]


def _put_with(put: MethodCall, change: Callable[[str, Any], Any]) -> Any:
    """Put, with ``change(key, value)`` in place of the value of each tag."""
    if put.tags is None:
        return put()
    return put(tags=[{key: change(key, tag) for key, tag in row.items()} for row in put.tags])


#: Decorator of a function that returns the value to store in place of a tag's value.
tag_value_mutant = applied(
    put_samples_mutant, lambda put, change: _put_with(put, lambda _, tag: change(tag))
)


@tag_value_mutant("TAG-01", evidence="got {'std': None}")
def TagNanBecomesNone(value: Any) -> Any:
    """Sends tags as JSON, which has no NaN, so NaN becomes None."""
    return None if isinstance(value, float) and math.isnan(value) else value


@tag_value_mutant("TAG-01", evidence="to carry {'prompt'")
def TagLongTextsTruncated(value: Any) -> Any:
    """Truncates text tags to 4096 characters, as a database column does."""
    return value[:4096] if isinstance(value, str) else value


@put_mutant("TAG-01", evidence="got {'reward': 1.0}")
def TagIntegersBesideFloatsBecomeFloats(put: MethodCall) -> None:
    """Converts integer tags to float if another row of the put has a float under that key."""
    tags = [tag for row in put.tags or () for tag in row.items()]
    floats = {key for key, tag in tags if isinstance(tag, float)}
    _put_with(put, lambda key, tag: float(tag) if key in floats and type(tag) is int else tag)


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


@put_mutant("TAG-01", evidence="got {'reward': 0}")
def TagTypeOfFirstPutKept(put: MethodCall) -> None:
    """Converts tags to the type of the key's first put, so 0.5 after an integer becomes 0."""
    types = put.notes.setdefault(put.partition_id, {})
    whole = {key for key, kind in types.items() if kind is int}
    for row in put.tags or ():
        for key, tag in row.items():
            types.setdefault(key, type(tag))
    _put_with(put, lambda key, tag: int(tag) if key in whole and _is_finite(tag) else tag)


@put_mutant("TAG-01", evidence="tags after a put of tags on one row of three")
def TagEqualDictsShared(put: MethodCall) -> None:
    """Stores equal tags of a put as one dict, as pickle does for ``[tags] * n``.

    A later put of tags for one row changes the tags of all these rows.
    """
    shared: dict[str, Tags] = {}
    with put.plane._locked():
        old = {row.sample_id: row.tags for row in known_rows(put) if row.tags}
        put()
        for row, new in zip(known_rows(put), put.tags or [], strict=False):
            row.tags = old.get(row.sample_id) or shared.setdefault(repr(new), dict(new))
            row.tags.update(new)


@tag_value_mutant("TAG-01", evidence="'true': True")
def TagBooleansBecomeIntegers(value: Any) -> Any:
    """Stores a bool tag as an integer."""
    return int(value) if isinstance(value, bool) else value


@tag_value_mutant("TAG-01", evidence="1e-300")
def TagFloatsInSinglePrecision(value: Any) -> Any:
    """Stores float tags in single precision."""
    return struct.unpack("f", struct.pack("f", value))[0] if type(value) is float else value


@tag_value_mutant("TAG-01", evidence="to carry", may_fail="TAG-03")
def TagIntegersAsDoubles(value: Any) -> Any:
    """Stores integer tags as doubles, so integers above 2**53 change."""
    return int(float(value)) if type(value) is int else value


@claim_meta_mutant("TAG-01", evidence="'none': None")
def TagNoneDropped(claim: MethodCall) -> KVBatchMeta:
    """Omits tags whose value is None."""
    meta = claim()
    tags = [{k: v for k, v in row.items() if v is not None} for row in meta.tags or []]
    return replace(meta, tags=tags)


@claim_meta_mutant("TAG-01 CLEAR-05", evidence="to carry", may_fail="TAG-03 CLEAR-04")
def TagsSortedById(claim: MethodCall) -> KVBatchMeta:
    """Returns the ids of a claim in put order, but the tags in the order of the sorted ids."""
    meta = claim()
    by_id = dict(zip(meta.sample_ids, meta.tags or [], strict=True))
    return replace(meta, tags=[by_id[sample_id] for sample_id in sorted(by_id)])


@claim_meta_mutant("TAG-01 TAG-05 CLEAR-05", evidence="tags where only one row has any")
def TagsStoredAsFields(claim: MethodCall) -> KVBatchMeta:
    """Stores tags as columns, so a row that lacks a key gets that key with None."""
    meta = claim()
    keys = dict.fromkeys(key for row in meta.tags or [] for key in row)
    return replace(meta, tags=[{key: row.get(key) for key in keys} for row in meta.tags or []])


@put_mutant("TAG-02 PUT-17 CLEAR-05", evidence="tags after write-backs", may_fail="TAG-01 CLEAR-04")
def TagsOmittedClearTags(put: MethodCall) -> None:
    """Clears a row's tags, such as its weight version, in a put without tags."""
    put()
    for row in known_rows(put) if put.tags is None else ():
        row.tags = {}


@put_mutant("TAG-02", evidence="tags after write-backs", may_fail="TAG-01")
def TagsLostOnOverwrite(put: MethodCall) -> None:
    """Drops the tags of a row when a put without tags overwrites a field."""
    old = [row for row in known_rows(put) if row.fields & names_of(put.fields)]
    put()
    for row in old if put.tags is None else []:
        row.tags = {}


def _put_and_stamp(put: MethodCall, stamped: Callable[[Tags, Tags], Tags]) -> None:
    """Put, and set the tags of rows that existed before to ``stamped(old, new)``."""
    before = {row.sample_id: row.tags for row in known_rows(put)}
    new = dict(zip(put.sample_ids, put.tags or [{}] * len(put.sample_ids), strict=True))
    put()
    for row in known_rows(put) if put.tags else ():
        if row.sample_id in before:
            row.tags = stamped(before[row.sample_id], dict(new[row.sample_id]))


@put_mutant("TAG-03", evidence="merged tags")
def TagsReplacedByEveryPut(put: MethodCall) -> None:
    """Replaces a row's tags in each put of tags instead of merging, so earlier keys are lost."""
    _put_and_stamp(put, lambda _, new: new)


@put_mutant("TAG-03", evidence="merged tags")
def TagsReplacedByPutsWithFields(put: MethodCall) -> None:
    """Replaces a row's tags, not merges them, in a put that has both fields and tags."""
    _put_and_stamp(put, lambda old, new: {**old, **new} if put.fields is None else new)


@put_mutant("TAG-03", evidence="merged tags", may_fail="TAG-01")
def TagFirstValueKept(put: MethodCall) -> None:
    """Adds new tag keys, but keeps the old value of a key that the row has."""
    _put_and_stamp(put, lambda old, new: {**new, **old})


class _KeepsTags(MemoryEngine):
    """Keeps the tags of cleared rows that had fields, or of those that had none."""

    _of_fields = True
    _left = State(dict[tuple[str, str], Tags])

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        left = [self._left.pop((partition_id, sample_id), {}) for sample_id in sample_ids]
        super().put(partition_id, sample_ids, fields, left if tags is None and any(left) else tags)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        for row in find_rows(self, partition_id, sample_ids):
            if bool(row.fields) is self._of_fields:
                self._left[partition_id, row.sample_id] = row.tags
        super().clear(partition_id, sample_ids)


@engine_mutant("TAG-05", evidence="tags after the clear", may_fail="CLEAR-04")
class TagsSurviveClear(_KeepsTags):
    """Keeps the tags of cleared rows, so a row put again without tags has the old tags."""


@engine_mutant("TAG-05", evidence="before they had fields", may_fail="CLEAR-03 CLEAR-04 CLEAR-05")
class TagsOfRowsWithoutFieldsSurviveClear(_KeepsTags):
    """Keeps the tags of cleared rows that had no fields, so the ids' next rows have them."""

    _of_fields = False


@put_samples_mutant("TAG-08", evidence="to keep its tag std=", may_fail="TAG-01")
def PutNumpyTagsDropped(put: MethodCall) -> KVBatchMeta:
    """Drops tags of types that it does not know, such as numpy scalars."""
    known = (int, float, str, type(None))
    if put.tags is None:
        return put()
    kept = [{k: v for k, v in row.items() if type(v) in {*known, bool}} for row in put.tags]
    return put(tags=kept)


def _without_equal(old: Tags, new: Tags) -> Tags:
    return old | {key: tag for key, tag in new.items() if key not in old or old[key] != tag}


@put_mutant("TAG-01", evidence="tags that equal the old ones")
def TagEqualToOldIgnored(put: MethodCall) -> None:
    """Ignores a tag that equals the old one, so True in place of 1 is read as 1.

    Stores that skip updates without a difference, and compare with ``==``, do so.
    """
    _put_and_stamp(put, _without_equal)


@engine_mutant("CLEAR-04", evidence="tags put alone after the clear", may_fail="TAG-05")
class TagsSurviveUntilNextFields(_KeepsTags):
    """Keeps the tags of cleared rows, and merges them with tags that are put alone.

    Planes that replace a row's tags only when its fields are written do so.
    """

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        left = [self._left.pop((partition_id, sample_id), {}) for sample_id in sample_ids]
        if fields is None:
            tags = [{**old, **new} for old, new in zip(left, tags or [], strict=True)]
        super().put(partition_id, sample_ids, fields, tags)

"""Checkers of tags, which only claims return: missing tags, and lost updates of tags.

a claim that overlaps                       may return
the put that makes the row ready            the row with all tags of the put, or no row
a put of tags on an existing row            the tags before it or after it
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, partial
from itertools import accumulate
from typing import Any

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly, ms
from rlconform.certify.concurrency.history import TAG, History, Interval
from rlconform.certify.concurrency.operation import Operation
from rlconform.contract import Tags


def tags_late(history: History) -> Iterator[Anomaly]:
    """Find claimed rows without a tag that every put which can have made them ready wrote."""
    written = cache(partial(_tags_written, history))
    for claim, sample_id, tags in _claimed_tags(history):
        puts, keys = written(sample_id)
        begun = bisect_right(puts, claim.latest, key=lambda put: put.start)
        missing = sorted(keys[begun - 1] - tags.keys()) if begun else []
        if missing:
            text = (
                f"{claim.task!r} claimed {sample_id!r} without its tag {missing[0]!r}, which the "
                f"put that made the row ready wrote"
            )
            yield anomaly("tags-late", sample_id, text, puts[begun - 1].operation, claim)


def _tags_written(history: History, sample_id: str) -> tuple[list[Interval], list[frozenset[str]]]:
    """Return a row's puts of fields, and for each put the tag keys in it and all before it."""
    puts = list(history.puts[sample_id])
    keys = [_keys(put.operation, sample_id) for put in puts]
    return puts, list(accumulate(keys, frozenset.intersection))


def _keys(put: Operation, sample_id: str) -> frozenset[str]:
    return frozenset(put.tags[put.ids.index(sample_id)] if put.tags else ())


def lost_updates(history: History) -> Iterator[Anomaly]:
    """Find tags put before a claim began that the claim omits or returns outdated."""
    keys_of: dict[Any, list[str]] = {}
    for sample_id, (kind, key) in history.writes:
        if kind == TAG:
            keys_of.setdefault(sample_id, []).append(key)
    for claim, sample_id, tags in _claimed_tags(history):
        for key in keys_of.get(sample_id, ()):
            yield from _lost(history, claim, sample_id, key, tags)


def _lost(
    history: History, claim: Operation, sample_id: str, key: str, tags: Tags
) -> Iterator[Anomaly]:
    sure = history.surely_there(sample_id, (TAG, key), claim)
    if key not in tags:
        if sure is not None:
            text = (
                f"tag {key!r} of {sample_id!r} is gone: {sure.operation.who} had put it "
                f"{ms(claim.start - sure.end)} before the claim began"
            )
            yield anomaly("lost-update", sample_id, text, sure.operation, claim)
        return
    writes = history.writes[sample_id, (TAG, key)]
    same = [write for write in writes if _tag(write.operation, sample_id, key) == tags[key]]
    after = [
        writes.inside(write.end, claim.start)
        or history.clears[sample_id].inside(write.end, claim.start)
        for write in same
    ]
    if not same or None not in after:
        past = [same[-1].operation] if same else []
        past += [newer.operation for newer in after[-1:] if newer]
        text = (
            f"tag {key!r} of {sample_id!r} is {tags[key]!r}, "
            f"{'which is outdated' if same else 'which nobody put'}"
        )
        yield anomaly("lost-update", sample_id, text, *past, claim)


def _tag(write: Operation, sample_id: str, key: str) -> Any:
    assert write.tags is not None
    return write.tags[write.ids.index(sample_id)][key]


def _claimed_tags(history: History) -> Iterator[tuple[Operation, str, Tags]]:
    """Yield each claimed row that was put, with its claim and the tags that the claim returned."""
    for claim in history.of("claim"):
        if claim.ok:
            for index, sample_id in enumerate(claim.ids):
                if sample_id in history.puts:
                    yield claim, sample_id, claim.tags[index] if claim.tags else {}

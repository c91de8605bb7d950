"""Verdicts on tags, which only claims show: late ones, and stamps that were lost.

a claim that overlaps                       may show
the put that makes the row ready            the row with all of its tags, or not the row
a stamp, a put of tags on a known row       the tags before it or after it
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly
from rlconform.certify.concurrency.events import Operation
from rlconform.certify.concurrency.history import TAG, History, Interval
from rlconform.contract import Tags


def tags_late(history: History) -> Iterator[Anomaly]:
    """Claimed rows without a tag that every put which can have made them ready carries."""
    carried: dict[str, tuple[list[Interval], list[frozenset[str]]]] = {}
    for claim, sample_id, tags in _shown(history):
        if sample_id not in carried:
            carried[sample_id] = _carried(history, sample_id)
        puts, keys = carried[sample_id]
        begun = bisect_right(puts, claim.latest, key=lambda put: put.start)
        missing = sorted(keys[begun - 1] - tags.keys()) if begun else []
        if missing:
            said = (
                f"{claim.task!r} was handed {sample_id!r} without its tag {missing[0]!r}, which "
                f"came with the put that made the row ready"
            )
            yield anomaly("tags-late", sample_id, said, puts[begun - 1].event, claim)


def _carried(history: History, sample_id: str) -> tuple[list[Interval], list[frozenset[str]]]:
    """The puts of a row that wrote fields, and after each the tags that all so far carried."""
    puts = list(history.puts_of(sample_id))
    keys = [_keys(put.event, sample_id) for put in puts]
    return puts, list(accumulate(keys, frozenset.intersection))


def _keys(put: Operation, sample_id: str) -> frozenset[str]:
    return frozenset(put.tags[put.ids.index(sample_id)] if put.tags else ())


def lost_updates(history: History) -> Iterator[Anomaly]:
    """Tags that were stamped before a claim began, and that it shows not at all or in the past."""
    stamped: dict[Any, list[str]] = {}
    for sample_id, (kind, key) in history.writes:
        if kind == TAG:
            stamped.setdefault(sample_id, []).append(key)
    for claim, sample_id, tags in _shown(history):
        for key in stamped.get(sample_id, ()):
            yield from _lost(history, claim, sample_id, key, tags)


def _lost(
    history: History, claim: Operation, sample_id: str, key: str, tags: Tags
) -> Iterator[Anomaly]:
    sure = history.surely_there(sample_id, (TAG, key), claim.start, claim.latest)
    if key not in tags:
        if sure is not None:
            said = (
                f"tag {key!r} of {sample_id!r} is gone: {sure.event.who} had stamped it "
                f"{1000 * (claim.start - sure.end):.1f} ms before the claim began"
            )
            yield anomaly("lost-update", sample_id, said, sure.event, claim)
        return
    stamps = history.wrote(sample_id, (TAG, key))
    same = [stamp for stamp in stamps if _tag(stamp.event, sample_id, key) == tags[key]]
    after = [
        stamps.inside(stamp.end, claim.start)
        or history.cleared_between(sample_id, stamp.end, claim.start)
        for stamp in same
    ]
    if not same or None not in after:
        past = [same[-1].event] if same else []
        past += [span.event for span in after[-1:] if span]
        said = (
            f"tag {key!r} of {sample_id!r} is {tags[key]!r}, "
            f"{'of the past' if same else 'which nobody stamped'}"
        )
        yield anomaly("lost-update", sample_id, said, *past, claim)


def _tag(stamp: Operation, sample_id: str, key: str) -> Any:
    assert stamp.tags is not None
    return stamp.tags[stamp.ids.index(sample_id)][key]


def _shown(history: History) -> Iterator[tuple[Operation, str, Tags]]:
    """Each claimed row that somebody put, with the tags that came with it."""
    for claim in history.of("claim"):
        if claim.ok:
            for index, sample_id in enumerate(claim.ids):
                if sample_id in history.puts:
                    yield claim, sample_id, claim.tags[index] if claim.tags else {}

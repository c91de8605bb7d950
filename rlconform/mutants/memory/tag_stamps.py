"""Tags that a later task lacks, texts that end too early, and tags of old puts that are dropped."""

from __future__ import annotations

from urllib.parse import unquote

from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import Tags
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    engine_mutant,
    find_rows,
    held,
    known_rows,
    put_mutant,
)
from rlconform.mutants.memory.tag import tag_value_mutant
from rlconform.mutants.types import Claimed, Ids, MaybeBatch, MaybeTags, Names, Wait


@engine_mutant("TAG-01", evidence="tags for the task 'ref_lp'")
class TagsQueuedForEachTask(MemoryEngine):
    """Queues rows and tags for each task, and rows alone for a task that is added while they live.

    The new task gets no tags that were put before its registration.
    """

    _before = State(dict[tuple[str, str], dict[str, Tags]])  # by partition and task

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        known = set(held(self, partition_id)._tasks)
        with self._locked():
            there = {row.sample_id: dict(row.tags) for row in find_rows(self, partition_id)}
        super().register(partition_id, tasks, group_size)
        for task in set(tasks) - known if known else ():
            self._before[partition_id, task] = there

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        before = self._before.get((partition_id, task), {})
        old = [before.get(sample_id, {}).items() for sample_id in ids]
        return ids, [dict(row.items() - items) for row, items in zip(tags, old, strict=True)]


@tag_value_mutant("TAG-01", evidence="to carry {'text'")
def TagTextsLoseNulsAtTheirEnd(value: object) -> object:
    """Stores the texts of a put in a numpy array of texts, which drops NULs at their ends."""
    return value.rstrip("\0") if isinstance(value, str) else value


@tag_value_mutant("TAG-01", evidence="to carry {'text': '%20'}")
def TagTextsAreDecoded(value: object) -> object:
    """Sends texts in headers, and decodes the percent signs that the sender did not encode."""
    return unquote(value) if isinstance(value, str) and "%" in value else value


#: Puts of tags that a plane keeps of each row.
LOG = 32


@put_mutant("TAG-03", evidence="tags of 40 puts")
def TagsOfOldestPutsDropped(put: MethodCall) -> None:
    """Keeps the tags of a row as a log of puts, and only the last 32 of them."""
    put()
    for row in known_rows(put) if put.tags is not None else ():
        key = (put.partition_id, row.sample_id)
        last, count = put.notes.get(key, ({}, 0))
        number, given = count + 1, put.tags[put.sample_ids.index(row.sample_id)]
        last = last | dict.fromkeys(given, number)
        put.notes[key] = last, number
        row.tags = {k: v for k, v in row.tags.items() if last.get(k, number) > number - LOG}


@engine_mutant("TAG-01", evidence="after another stamp", may_fail="TAG-02 TAG-03")
class MergedFloatsKeepFourteenDigits(MemoryEngine):
    """Merges the tags of a second stamp in a script whose numbers have fourteen digits."""

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        old = {row.sample_id: dict(row.tags) for row in find_rows(self, partition_id, ids)}
        super().put(partition_id, ids, fields, tags)
        stamped = [i for i in ids if old.get(i)] if tags is not None else []
        for row in find_rows(self, partition_id, stamped):
            short = {k: float(f"{v:.14g}") for k, v in row.tags.items() if type(v) is float}
            row.tags = {**row.tags, **short}


@put_mutant("TAG-01", evidence="to carry", may_fail="TAG-03 TAG-07")
def NoneTakesTagAway(put: MethodCall) -> None:
    """Drops a tag of a row that exists when None is put, as a merge patch of JSON does."""
    known = {row.sample_id for row in known_rows(put)}
    put()
    dropped = {i: set(tags) for i, tags in zip(put.sample_ids, put.tags or [], strict=False)}
    for row in known_rows(put):
        if row.sample_id in known:
            gone = dropped.get(row.sample_id, set())
            row.tags = {k: v for k, v in row.tags.items() if not (k in gone and v is None)}


#: Texts that the numbers of a plane tell apart.
TEXTS = 1 << 15


@engine_mutant("TAG-01", evidence="a text of its own on each row of step 3")
class TagTextsNumberedInFifteenBits(MemoryEngine):
    """Numbers the texts of tags in 15 bits, over all rows that there ever were."""

    _texts = State(dict[str, int])
    _first = State(dict[int, str])

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        rows = None if tags is None else [self._numbered(row) for row in tags]
        super().put(partition_id, ids, fields, rows)

    def _numbered(self, tags: Tags) -> Tags:
        numbered = dict(tags)
        for key, value in tags.items():
            if isinstance(value, str):
                number = self._texts.setdefault(value, len(self._texts)) % TEXTS
                numbered[key] = self._first.setdefault(number, value)
        return numbered

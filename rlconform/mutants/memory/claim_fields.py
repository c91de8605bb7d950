"""Claims that count how many of the required fields a row lacks."""

from __future__ import annotations

from rlconform.backends.index import IndexRow
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import engine_mutant, held, mark, names_of
from rlconform.mutants.types import Claimed, Ids, MaybeBatch, MaybeTags, Names, Wait

#: For each row that a claim found incomplete: the row, and how many fields it lacked.
Waiting = dict[str, tuple[IndexRow, int]]


@engine_mutant("CLAIM-01", evidence="put again", may_fail="CLAIM-07 GET-10 PUT-12 REG-08")
class OverwriteCountsForMissingField(MemoryEngine):
    """Counts down, for a row that a claim found incomplete, what is put to it later.

    An overwrite of a required field that the row has counts for the one that it lacks.
    """

    _waiting = State(dict[tuple[str, str, frozenset[str]], Waiting])

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        partition, required = held(self, partition_id), frozenset(names)
        if wait_s is not None or partition._group_size > 1:
            return ids, tags
        waiting = self._waiting.setdefault((partition_id, task, required), {})
        for sample_id, (row, lacks) in list(waiting.items()):
            known = partition._rows.get(sample_id) is row and task not in row.claimed_by
            if not known or required <= row.fields:
                del waiting[sample_id]
            elif lacks <= 0 and len(ids) < rows:
                mark(partition, [row], task)
                ids, tags = [*ids, sample_id], [*tags, dict(row.tags)]
        if len(ids) < rows:
            for sample_id, row in partition._rows.items():
                if row.fields and task not in row.claimed_by and not required <= row.fields:
                    waiting.setdefault(sample_id, (row, len(required - row.fields)))
        return ids, tags

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        names = names_of(fields)
        for (where, _, required), waiting in self._waiting.items():
            for sample_id in ids if where == partition_id else ():
                if sample_id in waiting:
                    row, lacks = waiting[sample_id]
                    waiting[sample_id] = row, lacks - len(names & required)

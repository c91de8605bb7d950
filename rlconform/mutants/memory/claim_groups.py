"""Claims that split GRPO groups."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import Any

from rlconform.backends.index.row import IndexRow, generation_of
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    call_mutant,
    claim_mutant,
    claimed_rows,
    find_rows,
    give_back,
    held,
    known_rows,
    mark,
    memory_mutant,
    partition_of,
    put_mutant,
    register_partition_mutant,
    rows_in,
)
from rlconform.mutants.memory.slot_helpers import RowSlots
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeTags


@claim_mutant("CLAIM-15", evidence="one of the groups")
def ClaimLastGroupSplit(claim: MethodCall) -> Claimed:
    """Splits the last group to return exactly as many rows as a claim asks for."""
    with claim.plane._locked() as index:
        partition = index.partition(claim.partition_id)
        size = max(1, partition._group_size)
        whole = claim.rows if claim.wait_s is not None else -(-claim.rows // size) * size
        ids, tags = claim(rows=whole)
        give_back(partition, rows_in(index, claim.partition_id, ids[claim.rows :]), claim.task)
        return ids[: claim.rows], tags[: claim.rows]


@register_partition_mutant("CLAIM-15", evidence="rows of the one whole group")
def ClaimGroupSizeIgnored(registration: MethodCall) -> None:
    """Accepts ``grpo_group_size`` and ignores it."""
    registration(grpo_group_size=None)


@call_mutant(RowSlots.put, "CLAIM-15", evidence="rows of the one whole group", plane=RowSlots)
def ClaimGroupsByNeighbouringSlots(put: MethodCall) -> None:
    """Groups rows by neighbouring slots, so reused slots mix the rows of two prompts (TQ-31)."""
    put()
    for row in known_rows(put):
        if row.group is not None:
            slot = put.plane._slots[put.partition_id][row.sample_id]
            row.group = None, slot // partition_of(put)._group_size


@put_mutant("CLAIM-15", evidence="rows of two half groups")
def ClaimGroupsByFirstIdPart(put: MethodCall) -> None:
    """Cuts uids at the first underscore, so ``step3_p0`` and ``step3_p1`` are one group."""
    put()
    for row in known_rows(put):
        if row.group is not None and generation_of(row.sample_id) is not None:
            row.group = row.sample_id.partition("_")[0], row.group[1]


def _unclaimed(claim: MethodCall) -> list[IndexRow]:
    """Return the rows that have all required fields and that the task has not claimed."""
    return [
        row
        for row in partition_of(claim)._rows.values()
        if row.fields.issuperset(claim.names) and claim.task not in row.claimed_by
    ]


@claim_mutant("CLAIM-15", evidence="of which one lacks a field")
def ClaimGroupPartlyReady(claim: MethodCall) -> Claimed:
    """Returns the ready rows of a group whose other rows still lack a required field."""
    with claim.plane._locked() as index:
        partition = index.partition(claim.partition_id)
        size, names = partition._group_size, frozenset(claim.names)
        if size == 1 or claim.wait_s is not None or not partition.is_ready(claim.task, names, 0):
            return claim()
        there = Counter(row.group for row in partition._rows.values() if row.fields)
        ready = [row for row in _unclaimed(claim) if there[row.group] == size]
        groups = list(dict.fromkeys(row.group for row in ready))[: claim.rows // size]
        chosen = [row for row in ready if row.group in groups]
        mark(partition, chosen, claim.task)
        return claimed_rows(chosen)


@claim_mutant("CLAIM-15", evidence="the claim to wait for a whole group")
def ClaimBlockingCountsRowsNotGroups(claim: MethodCall) -> Claimed:
    """Ends a blocking claim's wait when enough rows are ready, even without a whole group."""
    with claim.plane._locked():
        ready = _unclaimed(claim)[: claim.rows]
        grouped = claim.wait_s is not None and partition_of(claim)._group_size > 1
        if grouped and len(ready) == claim.rows:
            mark(partition_of(claim), ready, claim.task)
            return claimed_rows(ready)
    return claim()


@put_mutant("CLAIM-15", evidence="rows of two half groups")
def ClaimGroupsBySplitAtFirstMark(put: MethodCall) -> None:
    """Cuts uids at the first ``_g``, so prompts named ``a_g1_b`` and ``a_g1_c`` are one group."""
    put()
    for row in known_rows(put):
        if row.group is not None and generation_of(row.sample_id) is not None:
            row.group = row.sample_id.partition("_g")[0], row.group[1]


@put_mutant("CLAIM-15", evidence="rows of the one whole group")
def ClaimGroupsCutOneDigit(put: MethodCall) -> None:
    """Cuts ``_g`` and one digit off an id, so generations from 10 on are of another uid."""
    put()
    for row in known_rows(put):
        if row.group is not None and generation_of(row.sample_id) is not None:
            row.group = row.sample_id[:-3], row.group[1]


@put_mutant("CLAIM-15", evidence="both rows of each prompt")
def ClaimGroupsByHashOfUid(put: MethodCall) -> None:
    """Collects groups in 4,096 buckets by a hash of the uid, and doesn't compare the uids.

    Stores that divide keys by a prefix of their hash do so; prompts of one bucket share a group.
    """
    put()
    for row in known_rows(put):
        uid, place = row.group or (None, 0)
        if uid is not None:
            row.group = f"bucket {zlib.crc32(uid.encode()) % 4096}", place


@memory_mutant("CLAIM-15", evidence="sequence_lengths of")
class ClaimGroupLengthsByLastPut(MemoryClient):
    """Sorts the lengths of a group by the time of each row's last put, and the rows by age.

    Planes that keep the lengths in a list beside the group, in the order of arrival, do so.
    """

    _puts = State(count)
    _arrived = State(dict[tuple[str, str], int])  # number of the last put by row

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        now = next(self._puts)
        self._arrived.update({(partition_id, i): now for i in sample_ids if receipt.fields})
        return receipt

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **kwargs)
        size, lengths = held(self, partition_id)._group_size, meta.sequence_lengths
        if size == 1 or lengths is None:
            return meta
        arrived = [self._arrived.get((partition_id, i), 0) for i in meta.sample_ids]
        order = sorted(range(len(lengths)), key=lambda n: (n // size, arrived[n]))
        return replace(meta, sequence_lengths=[lengths[n] for n in order])


@claim_mutant("CLAIM-15", evidence="another task has claimed")
def ClaimGroupOncePartlyReady(claim: MethodCall) -> Claimed:
    """Returns ready rows of a group whose other rows lack a field once a task has claimed it whole.

    Samplers that keep one flag for each group, set when its rows first are together, do so.
    """
    ids, tags = claim()
    with claim.plane._locked():
        grouped = claim.wait_s is None and partition_of(claim)._group_size > 1
        parts = [row for row in _unclaimed(claim) if grouped and row.claimed_by]
        parts = parts[: claim.rows - len(ids)]
        mark(partition_of(claim), parts, claim.task)
    more_ids, more_tags = claimed_rows(parts)
    return ids + more_ids, tags + more_tags


class CountsArrivals(MemoryEngine):
    """An engine without a defect that counts the puts of each group's rows, minus its clears."""

    arrived = State(Counter[tuple[str, Any]])

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        rows = find_rows(self, partition_id, sample_ids) if fields is not None else []
        self.arrived.update((partition_id, row.group) for row in rows)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        rows = find_rows(self, partition_id, sample_ids)
        self.arrived.subtract((partition_id, row.group) for row in rows if row.fields)
        super().clear(partition_id, sample_ids)


@claim_mutant(
    "CLAIM-15", evidence="rows of a group that has two of its three rows", plane=CountsArrivals
)
def ClaimGroupsCountArrivals(claim: MethodCall) -> Claimed:
    """Counts the rows of a group as they arrive, so a row that is put again counts twice."""
    ids, tags = claim()
    with claim.plane._locked():
        size = partition_of(claim)._group_size
        here = Counter(row.group for row in partition_of(claim)._rows.values() if row.fields)
        arrived = {
            group: claim.plane.arrived[claim.partition_id, group] >= size > here[group]
            for group in here
        }
        parts = [row for row in _unclaimed(claim) if size > 1 and arrived[row.group]]
        parts = parts[: claim.rows - len(ids)] if claim.wait_s is None else []
        mark(partition_of(claim), parts, claim.task)
    more_ids, more_tags = claimed_rows(parts)
    return ids + more_ids, tags + more_tags


@put_mutant("CLAIM-15", evidence="rows of the prompt's second group")
def ClaimOneGroupOfEachPrompt(put: MethodCall) -> None:
    """Takes a prompt for done once a task has claimed rows of it: its later rows are not served."""
    put()
    with put.plane._locked():
        partition = partition_of(put)
        rows = list(partition._rows.values()) if partition._group_size > 1 else []
        for task in partition._tasks:
            claimed = {row.group for row in rows if task in row.claimed_by}
            done = {group[0] for group in claimed if group and group[0] is not None}
            later = [row for row in rows if row.group not in claimed]
            mark(partition, [row for row in later if row.group and row.group[0] in done], task)

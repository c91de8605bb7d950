"""Reads of rows from very many puts."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import is_dense
from rlconform.mutants.memory.helpers import find_rows, get_mutant

#: Numbers that fit into a byte.
NUMBERS = 256


@get_mutant("GET-01", evidence="row", may_fail="PUT-01 PUT-13")
def GetNumbersPutsInOneByte(read: MethodCall) -> TensorDict:
    """Numbers the puts of a read in one byte: rows of the 257th come back as those of the first."""
    asked = list(read.sample_ids)
    known = {row.sample_id: row for row in find_rows(read.plane, read.partition_id, asked)}
    if len(known) < len(set(asked)):
        return read()
    puts = [tuple(id(block) for block, _, _ in known[i].parts) for i in asked]
    first: dict[object, str] = {}
    for sample_id, put in zip(asked, puts, strict=True):
        first.setdefault(put, sample_id)
    if len(first) <= NUMBERS:
        return read()
    number = {put: n for n, put in enumerate(first)}
    firsts = list(first.values())
    wrong = [
        sample_id if number[put] < NUMBERS else firsts[number[put] % NUMBERS]
        for sample_id, put in zip(asked, puts, strict=True)
    ]
    batch: TensorDict = read(sample_ids=wrong)
    return batch


#: Segments that one call gathers.
SEGMENTS = 1024


@get_mutant("GET-01", evidence="row", may_fail="PUT-01 PUT-13")
def GetGathersSoManySegments(read: MethodCall) -> TensorDict:
    """Gathers 1,024 segments of rows at most; those of further puts stay zero."""
    batch: TensorDict = read()
    rows = {row.sample_id: row for row in find_rows(read.plane, read.partition_id, read.sample_ids)}
    puts: dict[object, None] = {}
    for place, sample_id in enumerate(read.sample_ids):
        put = tuple(id(block) for block, _, _ in rows[sample_id].parts)
        puts.setdefault(put)
        if len(puts) > SEGMENTS:
            for leaf in batch.values():
                if isinstance(leaf, torch.Tensor) and is_dense(leaf):
                    leaf[place:] = 0
            break
    return batch


#: Rows that a read fetches at once.
FETCHED = 1024


@get_mutant("GET-02", evidence="row", may_fail="GET-10")
def GetPagesShareSlots(read: MethodCall) -> TensorDict:
    """Fetches each id once, into a buffer of 1,024 slots that later pages overwrite.

    A row of the first page that is named again in a later one comes from a slot in use.
    """
    slots: dict[str, int] = {}
    buffer, found = [""] * FETCHED, list[str]()
    for start in range(0, len(read.sample_ids), FETCHED):
        page = list(read.sample_ids[start : start + FETCHED])
        new = [one for one in dict.fromkeys(page) if one not in slots]
        for slot, sample_id in enumerate(new):
            slots[sample_id], buffer[slot] = slot, sample_id
        found += [buffer[slots[sample_id]] for sample_id in page]
    batch: TensorDict = read(sample_ids=found)
    return batch

"""Races between threads of one process: a step that must be atomic is split in two."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import is_dense, through_one_buffer
from rlconform.mutants.memory.helpers import (
    WriteBack,
    claims_of,
    engine_mutant,
    fields_of,
    get_mutant,
    get_samples_mutant,
    memory_mutant,
    names_of,
    put_mutant,
    put_placeholder,
    put_samples_mutant,
    records,
    register_partition_mutant,
    stamps_of,
)
from rlconform.mutants.memory.slot_helpers import ReusesSlots
from rlconform.mutants.types import AnyBatch, Ids, MaybeTags


@engine_mutant("CLAIM-02", evidence="lost", chance=True)
class PutTableGrowsInTwoSteps(MemoryEngine):
    """Copies its table of ready rows to enlarge it, and loses rows put during the copy (TQ-08)."""

    _room = State(dict[str, int])

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            partition = index.partition(partition_id)
            room = self._room.setdefault(partition_id, 64)
            copied = set(partition._rows)
            if len(copied) <= room:
                return
            self._room[partition_id] = 2 * room
        time.sleep(0.005)  # duration of the copy
        with self._locked() as index:
            for sample_id in partition._rows.keys() - copied:
                partition._queues.discard([partition._rows[sample_id]])
                partition._rows[sample_id].claimed_by = frozenset(partition._tasks)


def _put_and_write_back(put: MethodCall, write_back: WriteBack) -> None:
    """Put, and let ``write_back`` restore parts of the rows as they were before the put."""
    names = frozenset(names_of(put.fields))
    with put.plane._locked() as index:
        writes_back = names and put.tags is None
        known = records(index, put.partition_id, put.sample_ids) if writes_back else []
    time.sleep(0.001 if known else 0)  # duration of a message
    put()
    with put.plane._locked() as index:
        for record in known:
            write_back(index.partition(put.partition_id), record, names)


@put_mutant("CLAIM-08", evidence="claims by id", chance=True)
def PutUndoesClaims(put: MethodCall) -> None:
    """Undoes a claim made during a put to the same row, so the row is claimed again."""
    _put_and_write_back(put, claims_of)


@get_mutant("CLEAR-07", evidence="or an error; got bytes of", chance=True, plane=ReusesSlots)
def GetReadsReusedSlot(read: MethodCall) -> TensorDict:
    """Reads a slot after it was given to another row, so it returns that row's values (TQ-11)."""
    pid, slots, owners = read.partition_id, read.plane._slots, read.plane._owners
    with read.plane._locked():
        looked_up = {i: slots.get((pid, i), -1) for i in read.sample_ids}
    time.sleep(random.random() * 0.004)
    with read.plane._locked():
        now = [owners.get((pid, looked_up[i]), i) for i in read.sample_ids]
    return read(sample_ids=now)


@put_samples_mutant("LIFE-05", evidence="= row:p-", chance=True, timeouts=RIGHT.timeouts)
def PutBufferSharedByThreads(put: MethodCall) -> KVBatchMeta:
    """Passes every dense column through one buffer without a lock, so threads mix their values.

    In the incident, threads shared one encoder's buffers, so columns had sizes that are no
    multiple of an element's size (TQ-20).
    """
    buffer = put.notes.setdefault("buffer", bytearray())
    return put(fields=through_one_buffer(buffer, put.fields))


@get_samples_mutant("LIFE-05", evidence="= row:p-", chance=True, timeouts=RIGHT.timeouts)
def GetSharedAttributeOverwritten(read: MethodCall) -> TensorDict:
    """Stores the ids of a read in an attribute, which another thread's read overwrites.

    In the incident, requests and answers of two threads were mixed on one connection (TQ-09).
    """
    read.plane.ids = read.sample_ids
    time.sleep(0)  # other threads run, as during a wait for a socket
    return read(sample_ids=read.plane.ids)


@register_partition_mutant(
    "LIFE-08",
    evidence="no row in a partition in which nothing was put",
    chance=True,
    may_fail="STAT-04",
)
def RegisterPutsPlaceholder(register: MethodCall) -> None:
    """Declares fields by putting and clearing a row that other threads can claim (NR-17)."""
    register()
    put_placeholder(register, 0.002)


@put_mutant("PUT-11", evidence="not produced", chance=True)
def PutFieldsOfTwoThreadsLost(put: MethodCall) -> None:
    """Updates a row's set of fields without a lock, so one of two concurrent puts is lost."""
    _put_and_write_back(put, fields_of)


@memory_mutant("REG-06", evidence="changed size during iteration", may_fail="LIFE-05", chance=True)
class ClaimFieldsChangeDuringIteration(MemoryClient):
    """Iterates over the fields in a claim while other threads add fields (NR-16)."""

    _fields = State(lambda: defaultdict[str, dict[str, None]](dict))

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        self._fields[partition_id].update(dict.fromkeys(receipt.fields or ()))
        return receipt

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        for _ in self._fields[partition_id]:
            time.sleep(0)  # other threads run
        return super().claim_meta(partition_id, *args, **kwargs)


@put_mutant("TAG-02", evidence="tagged and written to at once", chance=True)
def PutUndoesStamps(put: MethodCall) -> None:
    """Undoes a put of tags made during a put of fields to the same row."""
    _put_and_write_back(put, stamps_of)


@put_mutant("TAG-04", evidence="the tags of its put on every claimed row", chance=True)
def PutSendsTagsAfterFields(put: MethodCall) -> None:
    """Makes rows claimable before their tags are stored (TQ-04)."""
    if put.fields is None or put.tags is None:
        put()
    else:
        put(tags=None)
        time.sleep(0.002)  # duration of a second message
        put(fields=None)


#: Rows whose tags are in one message.
TAGS_PAGE = 64


@put_mutant("TAG-04", evidence="the tags of its put on every claimed row", chance=True)
def PutSendsTagsInPages(put: MethodCall) -> None:
    """Sends the tags of a put in pages of 64 rows, and makes all rows claimable with the first."""
    ids, tags = put.sample_ids, put.tags
    if put.fields is None or tags is None or len(ids) <= TAGS_PAGE:
        put()
        return
    put(tags=[*tags[:TAGS_PAGE], *({} for _ in tags[TAGS_PAGE:])])
    for start in range(TAGS_PAGE, len(ids), TAGS_PAGE):
        time.sleep(0.001)  # duration of a message
        page = slice(start, start + TAGS_PAGE)
        put(sample_ids=ids[page], fields=None, tags=tags[page])


@get_mutant("PUT-22", evidence="of one put", chance=True, may_fail="LIFE-05")
def GetFieldsOneByOne(read: MethodCall) -> TensorDict:
    """Looks up and copies field by field, so a put may come between two of them."""
    with read.plane._locked() as index:
        index.locate(read.partition_id, read.sample_ids, read.names)  # raises if one is missing
    leaves: dict[str, Any] = {name: read(names=[name]).get(name) for name in read.names}
    if all(isinstance(leaf, Tensor) and is_dense(leaf) for leaf in leaves.values()):
        return TensorDict(leaves, batch_size=[len(read.sample_ids)])
    batch: TensorDict = read()  # equally ragged columns share their offsets
    return batch


#: Bytes of a put whose columns are encoded outside the lock.
LARGE = 64 << 10


@put_mutant("PUT-11", evidence="not produced", chance=True)
def PutLargeFieldsOfTwoThreadsLost(put: MethodCall) -> None:
    """Writes back the set of a row's fields as it was before the columns of a large put were sent.

    Columns that another thread has put to the row meanwhile are lost.
    """
    leaves = put.fields.values() if names_of(put.fields) else ()
    large = sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor)) > LARGE
    if large:
        _put_and_write_back(put, fields_of)
    else:
        put()

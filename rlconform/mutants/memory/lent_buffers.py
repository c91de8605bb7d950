"""Buffers that a plane keeps, lends or fills again, and columns that it adds to the caller's."""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from itertools import islice
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import is_dense, mapped
from rlconform.mutants.memory.helpers import claim_mutant, engine_mutant, partition_of, put_mutant
from rlconform.mutants.types import Claimed, Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire.leaves import is_jagged, jagged_parts

#: Bytes of a column from which a copy of it is kept, and up to which a buffer is lent.
_KEPT, _LENT = 1 << 16, 1 << 20
#: Rows that a claim looks at.
_WINDOW = 4096


@engine_mutant("PUT-13", evidence="row", interplay=False)
class CopiesKeptByVersion(MemoryEngine):
    """Keeps the copy of a large tensor, and takes it again if torch has counted no change of it."""

    _copies = State(dict[int, tuple[Any, int, Tensor]])

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, mapped(fields, self._copy), tags)

    def _copy(self, leaf: Tensor) -> Tensor:
        if not is_dense(leaf) or leaf.is_inference() or leaf.nbytes < _KEPT:
            return leaf
        of, version, copy = self._copies.get(id(leaf), (lambda: None, -1, leaf))
        if of() is not leaf or version != leaf._version:
            copy = leaf.detach().clone()
            self._copies[id(leaf)] = weakref.ref(leaf), leaf._version, copy
        return copy


@engine_mutant("PUT-08", evidence="Inplace update to inference tensor", interplay=False)
class BuffersOfInferenceMode(MemoryEngine):
    """Copies columns into buffers, which can't be written again if made in inference mode."""

    _buffers = State(dict[Any, Tensor])

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, mapped(fields, self._staged), tags)

    def _staged(self, leaf: Tensor) -> Tensor:
        if not is_dense(leaf) or leaf.is_meta or leaf.is_quantized:
            return leaf
        key = leaf.dtype, leaf.shape
        if key not in self._buffers:
            self._buffers[key] = torch.empty(leaf.shape, dtype=leaf.dtype)
        return self._buffers[key].copy_(leaf.detach()).clone()


@engine_mutant("CLEAR-06", evidence="to grow the plane", interplay=False)
class FailedReadsPinColumns(MemoryEngine):
    """Pins the columns of a read as it finds them, and unpins them once it has found all."""

    _pinned = State(list[Any])

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        try:
            return super().get(partition_id, sample_ids, names)
        except LookupError:
            with self._locked() as index, suppress(LookupError):
                for name in names:
                    found = index.locate(partition_id, sample_ids, [name])
                    self._pinned.extend(source.block for source in found)
            raise


@engine_mutant("GET-13", evidence="what a caller keeps", may_fail="PUT-09", interplay=False)
class LentBufferTakenBack(MemoryEngine):
    """Lends the tensors of a read, and takes one back when the object that it returned is gone."""

    _pools = State(dict[Any, list[Tensor]])

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        batch = super().get(partition_id, sample_ids, names)
        for name in names:
            leaf = batch.get(name)
            if isinstance(leaf, Tensor) and is_dense(leaf) and 0 < leaf.nbytes <= _LENT:
                pool = self._pools.setdefault((leaf.dtype, leaf.shape), [])
                buffer = pool.pop().copy_(leaf) if pool else leaf.clone()
                lent = buffer.detach()
                weakref.finalize(lent, pool.append, buffer).atexit = False
                batch[name] = lent
        return batch


@put_mutant("PUT-11", evidence="x_lengths", may_fail="GET-05 GET-13 CLAIM-01 PUT-17")
def LengthsAmongFields(put: MethodCall) -> None:
    """Stores the row lengths of a jagged field as one more field, named after it."""
    if put.fields is None:
        return put()
    columns = {str(name): put.fields.get(name) for name in put.fields.keys()}  # noqa: SIM118
    for name, leaf in list(columns.items()):
        if isinstance(leaf, Tensor) and is_jagged(leaf):
            columns.setdefault(f"{name}_lengths", jagged_parts(leaf)[1].lengths)
    return put(fields=TensorDict(columns, put.fields.batch_size))


@claim_mutant("CLAIM-04", evidence="the newest of 10304", may_fail="CLAIM-02 PUT-12")
def ClaimLooksAtOldestThousands(claim: MethodCall) -> Claimed:
    """Looks for ready rows among the 4096 oldest that the task has not claimed."""
    rows = partition_of(claim)._rows.values()
    window = islice((row for row in rows if claim.task not in row.claimed_by), _WINDOW)
    ready = sum(set(claim.names) <= row.fields for row in window)
    return claim() if claim.wait_s is not None else claim(rows=min(claim.rows, ready))


#: Buffers for threads that read.
_OF_THREADS = 8


@engine_mutant("GET-13", evidence="row", interplay=False)
class BuffersOfThreadsThatEnded(MemoryEngine):
    """Gives the first read of a thread one of eight buffers, which later threads get in turn."""

    _own = State(threading.local)
    _threads = State(int)
    _lent = State(dict[tuple[int, str], Tensor])

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        batch = super().get(partition_id, sample_ids, names)
        if threading.current_thread() is threading.main_thread() or hasattr(self._own, "known"):
            return batch
        self._own.known = True
        self._threads += 1
        for name, leaf in list(batch.items()):
            if isinstance(leaf, Tensor) and is_dense(leaf):
                key = self._threads % _OF_THREADS, name
                lent = self._lent.get(key)
                if lent is None or (lent.dtype, lent.shape) != (leaf.dtype, leaf.shape):
                    self._lent[key] = leaf
                else:
                    batch.set(name, lent.copy_(leaf).detach())
        return batch

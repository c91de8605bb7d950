"""Repeated reads of the same rows that share what they return."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import is_dense
from rlconform.mutants.memory.helpers import get_mutant


def _equal(one: TensorDict, other: TensorDict) -> bool:
    pairs = [(one.get(name), other.get(name)) for name in map(str, one.keys())]
    return all(a.dtype is b.dtype and torch.equal(a, b) for a, b in pairs)


@get_mutant("GET-13", evidence="row 0 of 'x' =", may_fail="PUT-09")
def GetKeepsSecondReadItself(read: MethodCall) -> TensorDict:
    """Keeps a batch that is read a second time, and copies it for later readers.

    The second reader has the kept batch itself, so what it changes shows in all later reads.
    """
    batch: TensorDict = read()
    if not all(isinstance(leaf, Tensor) and is_dense(leaf) for leaf in batch.values()):
        return batch
    key = (read.partition_id, *read.names, None, *read.sample_ids)
    stored, kept = read.notes.get(key, (None, None))
    if stored is None or not _equal(stored, batch):
        read.notes[key] = (batch.clone(), None)
        return batch
    if kept is None:
        read.notes[key] = (stored, batch)
        return batch
    again: TensorDict = kept.clone()
    return again

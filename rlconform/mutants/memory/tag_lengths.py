"""Sequence lengths of a meta that are outdated, guessed or missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.mutants.call import MethodCall, State, applied
from rlconform.mutants.memory.helpers import claim_meta_mutant, memory_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags
from rlconform.wire import rows_of


@claim_meta_mutant("TAG-06", evidence="expected sequence_lengths; got None")
def ClaimLengthZeroDropsLengths(claim: MethodCall) -> KVBatchMeta:
    """Tests ``if all(lengths)``, so one row of length 0 removes the lengths of all rows."""
    meta = claim()
    return meta if all(meta.sequence_lengths or []) else replace(meta, sequence_lengths=None)


def _claim_with_lengths(claim: MethodCall, lengths: Callable[..., list[int] | None]) -> Any:
    meta: KVBatchMeta = claim()
    if meta.sequence_lengths is not None:
        return meta
    return replace(meta, sequence_lengths=lengths(claim.plane, meta))


#: Decorator of a function that guesses a claim's lengths if a row has no length tag.
guess_mutant = applied(claim_meta_mutant, _claim_with_lengths)


def _lengths_or_zeros(meta: KVBatchMeta) -> list[int]:
    return [int(row.get(INPUT_LENGTHS, 0)) for row in meta.tags or []]


@guess_mutant("TAG-06", evidence="sequence_lengths where a row has none")
def ClaimMissingLengthIsZero(plane: MemoryClient, meta: KVBatchMeta) -> list[int]:
    """Reports length 0 for a row without a length tag."""
    return _lengths_or_zeros(meta)


@guess_mutant("TAG-06", evidence="sequence_lengths where a row has none")
def ClaimLengthsDecidedByFirstRow(plane: MemoryClient, meta: KVBatchMeta) -> list[int] | None:
    """Decides by the first row alone whether a claim has lengths."""
    return _lengths_or_zeros(meta) if meta.tags and INPUT_LENGTHS in meta.tags[0] else None


@guess_mutant("TAG-06", evidence="sequence_lengths where a row has none")
def ClaimLengthsMeasured(plane: MemoryClient, meta: KVBatchMeta) -> list[int] | None:
    """Measures missing lengths from the rows' first field, which may be the bytes of an image."""
    try:
        leaf = plane.get_data(meta).get((meta.fields or [])[0])
    except LookupError:
        return None
    if not isinstance(leaf, torch.Tensor):
        return None
    return [row.shape[0] if row.dim() else 1 for row in rows_of(leaf)]


class _KeepsLengths(MemoryClient):
    """Records each row's length in a put, and returns the recorded lengths in claims."""

    #: Whether a new length replaces the recorded one, and whether clears drop it.
    follows, forgets = True, True
    #: Whether a put of tags without fields records lengths.
    alone = True

    _lengths = State(dict[tuple[str, str], Any])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        recorded = tags or [] if self.alone or receipt.fields else []
        for sample_id, row in zip(sample_ids, recorded, strict=False):
            key = (partition_id, sample_id)
            if INPUT_LENGTHS in row and (self.follows or key not in self._lengths):
                self._lengths[key] = row[INPUT_LENGTHS]
        return receipt

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **kwargs)
        rows = [(partition_id, sample_id) for sample_id in meta.sample_ids]
        if not rows or not all(row in self._lengths for row in rows):
            return meta
        return replace(meta, sequence_lengths=[self._lengths[row] for row in rows])

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        for key in [k for k in self._lengths if self.forgets and k[0] == partition_id]:
            if sample_ids is None or key[1] in sample_ids:
                del self._lengths[key]


@memory_mutant("TAG-06", evidence="after new tags were put")
class ClaimLengthsNeverUpdated(_KeepsLengths):
    """Records a row's length only once, so the length is too short after another turn."""

    follows = False


@memory_mutant("TAG-06", evidence="of rows put again without lengths")
class ClaimLengthsOfClearedRows(_KeepsLengths):
    """Keeps the lengths of cleared rows, so an id that is put again has the old length."""

    forgets = False


@memory_mutant("TAG-06", evidence="sequence_lengths by id")
class ClaimLengthsOfPutsWithFields(_KeepsLengths):
    """Records lengths only in puts with fields, so a put of tags alone leaves the old ones."""

    alone = False

"""Sequence lengths of a meta that are outdated, guessed or missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.mutants.memory.helpers import memory_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags
from rlconform.wire import rows_of


@memory_mutant("TAG-06", evidence="expected sequence_lengths; got None")
class ClaimLengthZeroDropsLengths(MemoryClient):
    """Tests ``if all(lengths)``, so one row of length 0 removes the lengths of all rows."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        return meta if all(meta.sequence_lengths or []) else replace(meta, sequence_lengths=None)


class _CountsTokens(MemoryClient):
    """Guesses the lengths of a claim that has none."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if meta.sequence_lengths is None:
            meta = replace(meta, sequence_lengths=self.lengths(meta))
        return meta

    def lengths(self, meta: KVBatchMeta) -> list[int] | None:
        """The lengths of rows of which at least one has no length."""
        return [int(row.get(INPUT_LENGTHS, 0)) for row in meta.tags or []]


@memory_mutant("TAG-06", evidence="sequence_lengths where a row has none")
class ClaimMissingLengthIsZero(_CountsTokens):
    """Reports length 0 for a row without a length tag."""


@memory_mutant("TAG-06", evidence="sequence_lengths where a row has none")
class ClaimLengthsDecidedByFirstRow(_CountsTokens):
    """Decides by the first row alone whether a claim has lengths."""

    def lengths(self, meta: KVBatchMeta) -> list[int] | None:
        tags = meta.tags or [{}]
        return super().lengths(meta) if INPUT_LENGTHS in tags[0] else None


@memory_mutant("TAG-06", evidence="sequence_lengths where a row has none")
class ClaimLengthsMeasured(_CountsTokens):
    """Measures missing lengths from the rows' first field, which may be the bytes of an image."""

    def lengths(self, meta: KVBatchMeta) -> list[int] | None:
        try:
            leaf = self.get_data(meta).get((meta.fields or [])[0])
        except LookupError:
            return None
        if not isinstance(leaf, torch.Tensor):
            return None
        return [row.shape[0] if row.dim() else 1 for row in rows_of(leaf)]


class _KeepsLengths(MemoryClient):
    """Records each row's length when it is put, and reports the record."""

    #: Whether a new length replaces the recorded one, and whether clears drop it.
    follows, forgets = True, True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lengths: dict[tuple[str, str], Any] = {}

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for sample_id, row in zip(sample_ids, tags or [], strict=False):
            if INPUT_LENGTHS in row and self.follows:
                self._lengths[partition_id, sample_id] = row[INPUT_LENGTHS]
            elif INPUT_LENGTHS in row:
                self._lengths.setdefault((partition_id, sample_id), row[INPUT_LENGTHS])
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
    """Records a row's length once, so it is too short after another turn."""

    follows = False


@memory_mutant("TAG-06", evidence="of rows put again without lengths")
class ClaimLengthsOfClearedRows(_KeepsLengths):
    """Keeps the lengths of cleared rows, so an id that is put again has the old length."""

    forgets = False

"""Lengths that a plane keeps in a table of its own, beside the tags that say them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, Tags
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.mutants.engines import breaks


class _KeepsLengths(MemoryClient):
    """Notes each row's length as it is put, and reports these."""

    #: Whether a length that is stamped anew replaces the one noted, and whether clears drop it.
    follows, forgets = True, True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lengths: dict[tuple[str, str], Any] = {}

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, and note the lengths."""
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for sample_id, row in zip(sample_ids, tags or [], strict=False):
            if INPUT_LENGTHS in row and self.follows:
                self._lengths[partition_id, sample_id] = row[INPUT_LENGTHS]
            elif INPUT_LENGTHS in row:
                self._lengths.setdefault((partition_id, sample_id), row[INPUT_LENGTHS])
        return receipt

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim, with the lengths noted where each row has one."""
        meta = super().claim_meta(partition_id, *args, **kwargs)
        rows = [(partition_id, sample_id) for sample_id in meta.sample_ids]
        if not rows or not all(row in self._lengths for row in rows):
            return meta
        return replace(meta, sequence_lengths=[self._lengths[row] for row in rows])

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Clear, and forget the lengths."""
        super().clear_samples(sample_ids, partition_id)
        for key in [k for k in self._lengths if self.forgets and k[0] == partition_id]:
            if sample_ids is None or key[1] in sample_ids:
                del self._lengths[key]


@breaks("TAG-06", says="after another turn was played")
class NotesTheFirstLength(_KeepsLengths):
    """Notes a row's length once: another turn makes the row longer, and the plan is too short."""

    follows = False


@breaks("TAG-06", says="in this life")
class LengthsOutliveTheirRows(_KeepsLengths):
    """Clears rows and not their lengths: an id that lives again has the one of its past."""

    forgets = False

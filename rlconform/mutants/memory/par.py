"""Planes that are correct in single calls and wrong for the shards of a training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.column_helpers import AlteredReads, TracksPuts, is_jagged_tensor, nest
from rlconform.mutants.memory.helpers import memory_mutant
from rlconform.wire import is_object_column, rows_of

#: Bytes in one message of the transport.
PIECE_BYTES = 1024


@memory_mutant("PAR-01", evidence="rank")
class GetLastPieceDropped(AlteredReads):
    """Drops the last piece of rows of 8 to 64 KiB, which it sends in pieces, if it isn't full."""

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        if not is_jagged_tensor(leaf) or leaf.dim() != 2:
            return leaf
        piece = PIECE_BYTES // leaf.element_size()
        sent = (8 * PIECE_BYTES, 64 * PIECE_BYTES)
        rows = [r[: len(r) // piece * piece] if sent[0] < r.nbytes <= sent[1] else r
                for r in rows_of(leaf)]  # fmt: skip
        return nest(rows)


class _SaysLengths(MemoryClient):
    """Reports ``said(lengths, meta)`` as the lengths of a claim."""

    said: Callable[[list[int], KVBatchMeta], list[int]]

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        lengths = meta.sequence_lengths
        return meta if lengths is None else replace(meta, sequence_lengths=self.said(lengths, meta))


@memory_mutant("PAR-02", evidence="lengths of rank", may_fail=("PAR-01",))
class ClaimLengthsInHalfPrecision(_SaysLengths):
    """Stores lengths in half precision, so odd lengths above 2048 are rounded."""

    @staticmethod
    def said(lengths: list[int], meta: KVBatchMeta) -> list[int]:
        return [int(n) for n in torch.tensor(lengths).half().tolist()]


@memory_mutant("PAR-02", "PAR-01", evidence="lengths of rank")
class ClaimLengthsSortedById(_SaysLengths):
    """Returns the ids of a claim by age but their lengths sorted by id."""

    @staticmethod
    def said(lengths: list[int], meta: KVBatchMeta) -> list[int]:
        by_id = dict(zip(meta.sample_ids, lengths, strict=True))
        return [by_id[sample_id] for sample_id in sorted(by_id)]


@memory_mutant(
    "SHARD-01",
    "SHARD-02",
    "PAR-01",
    "PAR-02",
    "CLAIM-05",
    evidence="a blocking claim to come with all",
)
class ClaimBlockingLimitedToPage(MemoryClient):
    """Returns at most 50 rows from a blocking claim, even if it asks for 64."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        if isinstance(kwargs.get("batch_size"), int) and kwargs.get("blocking"):
            kwargs["batch_size"] = min(50, kwargs["batch_size"])
        return super().claim_meta(*args, **kwargs)


@memory_mutant("SHARD-02", evidence="row", may_fail=("GET-01", "PUT-13"))
class GetRowsPutByPut(TracksPuts):
    """Returns rows in the order of their puts if a read combines four puts or more."""

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        if is_object_column(leaf) or len({self.noted(cell)[0] for cell in cells}) < 4:
            return leaf
        rows = rows_of(leaf)
        order = sorted(range(len(rows)), key=lambda n: self.noted(cells[n])[0])
        picked = [rows[n] for n in order]
        return nest(picked) if leaf.is_nested else torch.stack(picked)

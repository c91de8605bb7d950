"""Planes that are correct in single calls and wrong for the shards of a training step."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import (
    PutOrigin,
    TracksPuts,
    jagged,
    read_jagged_mutant,
)
from rlconform.mutants.memory.helpers import claim_meta_mutant, memory_mutant
from rlconform.wire import rows_of

#: Bytes in one message of the transport.
PIECE_BYTES = 1024


@read_jagged_mutant("PAR-01", evidence="rank")
def GetLastPieceDropped(leaf: Tensor) -> Tensor:
    """Sends rows of 8 to 64 KiB in pieces of 1 KiB, and drops a last piece that isn't full."""
    if leaf.dim() != 2:
        return leaf
    piece = PIECE_BYTES // leaf.element_size()
    least, most = 8 * PIECE_BYTES, 64 * PIECE_BYTES
    rows = rows_of(leaf)
    return jagged([r[: len(r) // piece * piece] if least < r.nbytes <= most else r for r in rows])


@claim_meta_mutant("PAR-02", evidence="lengths of rank", may_fail="PAR-01")
def ClaimLengthsInHalfPrecision(claim: MethodCall) -> KVBatchMeta:
    """Stores lengths in half precision, so odd lengths above 2048 are rounded."""
    meta: KVBatchMeta = claim()
    if meta.sequence_lengths is None:
        return meta
    rounded = torch.tensor(meta.sequence_lengths).half().int().tolist()
    return replace(meta, sequence_lengths=rounded)


@claim_meta_mutant("PAR-02 PAR-01", evidence="lengths of rank")
def ClaimLengthsSortedById(claim: MethodCall) -> KVBatchMeta:
    """Returns the ids of a claim in put order, but the lengths in the order of the sorted ids."""
    meta: KVBatchMeta = claim()
    if meta.sequence_lengths is None:
        return meta
    by_id = dict(zip(meta.sample_ids, meta.sequence_lengths, strict=True))
    return replace(meta, sequence_lengths=[by_id[sample_id] for sample_id in sorted(by_id)])


@claim_meta_mutant(
    "SHARD-01 SHARD-02 PAR-01 PAR-02 CLAIM-05", evidence="a blocking claim to come with all"
)
def ClaimBlockingLimitedToPage(claim: MethodCall) -> KVBatchMeta:
    """Returns at most 50 rows from a blocking claim, even if it asks for 64."""
    limited = isinstance(claim.batch_size, int) and claim.blocking
    return claim(batch_size=min(50, claim.batch_size)) if limited else claim()


@memory_mutant("SHARD-02", evidence="row", may_fail="GET-01 PUT-13 CLEAR-01")
class GetRowsPutByPut(TracksPuts):
    """Returns rows in the order of their puts if a read combines four puts or more."""

    def changed(self, leaf: Tensor, origins: list[PutOrigin]) -> Tensor:
        if len({put for put, _ in origins}) < 4:
            return leaf
        rows = rows_of(leaf)
        picked = [rows[n] for n in sorted(range(len(rows)), key=lambda n: origins[n].put)]
        return jagged(picked) if leaf.is_nested else torch.stack(picked)

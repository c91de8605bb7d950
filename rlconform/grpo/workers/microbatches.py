"""A rank's rows as global batches of micro-batches, by the driver's plan or by a number of rows.

    rows (N, S) ── plan_of ──▶ one list of Spans per optimizer step ── cut ──▶ micro-batch (n, W)

Ranks that run different numbers of micro-batches wait for each other for ever; hence the plan is
the driver's wherever rows are packed, and follows from N alone where they aren't.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from tensordict import TensorDict

from rlconform.contract.fields import (
    ELEM_COUNTS_PER_GB,
    INPUT_LENGTHS,
    MICRO_BATCH_INDICES,
    MICRO_BATCH_LENGTHS,
    PER_TOKEN_FIELDS,
)
from rlconform.grpo.models import RowLayout


class TokenSpan(NamedTuple):
    """Where a micro-batch lies among its rank's rows.

    Attributes:
        start: Its first row.
        stop: The row after its last.
        tokens: As planned: the width of its rows where they are padded, and the tokens of all of
            them where they are packed.
    """

    start: int
    stop: int
    tokens: int


def plan_of(
    n_rows: int, width: int, packing: Mapping[str, Any], n_batches: int, microbatch_rows: int
) -> list[list[TokenSpan]]:
    """The micro-batches of each global batch, in the order in which they run.

    Args:
        n_rows: Rows of this rank, N.
        width: Tokens that they are padded to, S.
        packing: The driver's plan, see ``plane.sharding``; empty where rows aren't packed, and then
        n_batches: global batches of as many rows each, cut into micro-batches of
        microbatch_rows: rows.

    Raises:
        ValueError: The plan speaks of another number of rows, or N doesn't divide.
    """
    if packing:
        return _planned(n_rows, packing)
    if n_rows % n_batches:
        raise ValueError(f"{n_rows} rows don't divide into {n_batches} global batches")
    of_batch = n_rows // n_batches
    return [
        [
            TokenSpan(start, min(start + microbatch_rows, first + of_batch), width)
            for start in range(first, first + of_batch, microbatch_rows)
        ]
        for first in range(0, n_rows, of_batch)
    ]


def cut(rows: TensorDict, span: TokenSpan, layout: RowLayout) -> TensorDict:
    """The span's rows, per-token columns (n, S, ...) narrowed to what its rows need.

    Args:
        rows: (N,) a rank's rows, padded.
        span: One of ``plan_of``.
        layout: ``padded`` rows are as wide as planned; of ``packed`` ones, which the plan counts
            together, the longest decides.
    """
    chosen = rows[span.start : span.stop]
    width = int(chosen[INPUT_LENGTHS].max()) if layout == "packed" else span.tokens
    narrowed = {
        name: leaf[:, :width] if name in PER_TOKEN_FIELDS and leaf.dim() > 1 else leaf
        for name, leaf in chosen.items()
    }
    return TensorDict(narrowed, batch_size=chosen.batch_size)


def _planned(n_rows: int, packing: Mapping[str, Any]) -> list[list[TokenSpan]]:
    counts = packing[ELEM_COUNTS_PER_GB]
    if sum(counts) != n_rows:
        raise ValueError(f"the plan speaks of {sum(counts)} rows, and there are {n_rows}")
    firsts = [sum(counts[:batch]) for batch in range(len(counts) + 1)]
    return [
        [
            TokenSpan(first + start, first + stop, tokens)
            for (start, stop), tokens in zip(spans, lengths, strict=True)
        ]
        for (first, _), spans, lengths in zip(
            pairwise(firsts),
            packing[MICRO_BATCH_INDICES],
            packing[MICRO_BATCH_LENGTHS],
            strict=True,
        )
    ]

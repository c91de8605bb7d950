"""Micro-batches of a rank: which of its rows go through the model together.

    rows (N, S) ── plan_microbatches ──▶ TokenSpans of each optimizer step
                ── slice_microbatch ──▶ micro-batch (n, W)

All ranks must run the same number of micro-batches, or they wait for each other forever. So the
driver makes the plan if rows are packed, and without packing the plan depends only on N.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
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
from rlconform.plane.microbatches import round_up


class TokenSpan(NamedTuple):
    """The rows ``start:stop`` of a rank that form a micro-batch."""

    start: int
    stop: int
    #: Planned size: the width of padded rows, or the sum of the tokens of packed rows.
    tokens: int


def plan_microbatches(
    n_rows: int, width: int, packing: Mapping[str, Any], n_batches: int, microbatch_rows: int
) -> list[list[TokenSpan]]:
    """List the micro-batches of each global batch in the order in which they run.

    ``packing`` is the driver's plan (``plane.sharding``). If it is empty, each global batch is
    divided into micro-batches of ``microbatch_rows`` rows of ``width`` tokens.

    Raises:
        ValueError: The plan has another number of rows, or ``n_batches`` doesn't divide ``n_rows``.
    """
    if packing:
        return _planned(n_rows, packing)
    if n_rows % n_batches:
        raise ValueError(f"{n_rows} rows don't divide into {n_batches} global batches")
    batch_rows = n_rows // n_batches
    return [
        [
            TokenSpan(start, min(start + microbatch_rows, first + batch_rows), width)
            for start in range(first, first + batch_rows, microbatch_rows)
        ]
        for first in range(0, n_rows, batch_rows)
    ]


def slice_microbatch(rows: TensorDict, span: TokenSpan, layout: RowLayout) -> TensorDict:
    """Select a span's rows, as wide as planned (``padded``) or as the longest row (``packed``)."""
    selected = rows[span.start : span.stop]
    width = int(selected[INPUT_LENGTHS].max()) if layout == "packed" else span.tokens
    narrowed = {
        name: leaf[:, :width] if name in PER_TOKEN_FIELDS and leaf.dim() > 1 else leaf
        for name, leaf in selected.items()
    }
    return TensorDict(narrowed, batch_size=selected.batch_size)


def plan_misfit(
    lengths: Sequence[int], plan: Sequence[Sequence[TokenSpan]], layout: RowLayout, multiple: int
) -> str:
    """Return an error message if rows of these lengths don't fit into their plan, else "".

    A model that ran them would leave out tokens. Packed rows are each rounded up to a multiple of
    ``multiple`` tokens.
    """
    for span in itertools.chain.from_iterable(plan):
        own = lengths[span.start : span.stop]
        packed = layout == "packed"
        needed = sum(round_up(n, multiple) for n in own) if packed else max(own, default=0)
        if needed > span.tokens:
            return (
                f"expected rows {span.start} to {span.stop - 1} to fit into their planned "
                f"{span.tokens} tokens; got {needed}, {layout}: make the plan on the driver, "
                f"from the lengths of these rows"
            )
    return ""


def _planned(n_rows: int, packing: Mapping[str, Any]) -> list[list[TokenSpan]]:
    counts = packing[ELEM_COUNTS_PER_GB]
    if sum(counts) != n_rows:
        raise ValueError(f"the plan has {sum(counts)} rows, expected {n_rows}")
    firsts = [sum(counts[:batch]) for batch in range(len(counts))]
    plans = zip(firsts, packing[MICRO_BATCH_INDICES], packing[MICRO_BATCH_LENGTHS], strict=True)
    return [
        [
            TokenSpan(first + start, first + stop, tokens)
            for (start, stop), tokens in zip(spans, lengths, strict=True)
        ]
        for first, spans, lengths in plans
    ]

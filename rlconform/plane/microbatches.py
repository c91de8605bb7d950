"""Plans the micro-batches of one global batch for every data-parallel (DP) rank, from lengths only.

    split_evenly     consecutive rows for each rank, without micro-batches
    pack             sequence packing: rows end to end; tokens = sum over the rows
    batch_by_length  dynamic batching: rows of similar lengths, padded; tokens = rows x width

Each micro-batch is a round of collectives, so all ranks must run the same number of them; under
dynamic batching each round also has the same number of rows and the same width on every rank.
Therefore the driver, which knows all lengths, makes one plan for all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

from pydantic import Field
from pydantic.dataclasses import dataclass

from rlconform.plane.packing import PackingAlgorithm, pack_sequences

MicrobatchOrder = Literal["packer", "largest_first"]
Count = Annotated[int, Field(strict=True, ge=1)]


@dataclass(frozen=True)
class SequencePacking:
    """Configuration of sequence packing; ``ValueError`` for a value out of range.

    Attributes:
        max_tokens_per_microbatch: Maximum tokens of a micro-batch, with each row rounded up.
        algorithm: How to choose the rows of a micro-batch, see ``plane.packing``.
        sequence_length_pad_multiple: Each row's length is rounded up to a multiple of this, as
            context and sequence parallelism need it.
        microbatch_order: Within a global batch a rank runs its micro-batches in the packer's order
            (``packer``), or the largest first (``largest_first``), so that memory use is highest
            at the start.
        seed: Seed of ``modified_first_fit_shuffle``; at least 0.
    """

    max_tokens_per_microbatch: Count
    algorithm: PackingAlgorithm = "modified_first_fit_decreasing"
    sequence_length_pad_multiple: Count = 1
    microbatch_order: MicrobatchOrder = "packer"
    seed: Annotated[int, Field(strict=True, ge=0)] = 0


@dataclass(frozen=True)
class DynamicBatching:
    """Configuration of dynamic batching; ``ValueError`` for a value out of range.

    Attributes:
        max_tokens_per_microbatch: Maximum tokens of a micro-batch, padding included.
        sequence_length_round: The width of a micro-batch is rounded up to a multiple of this.
    """

    max_tokens_per_microbatch: Count
    sequence_length_round: Count = 1


class MicroBatch(NamedTuple):
    """Rows of one forward pass, by their numbers in the global batch."""

    rows: list[int]
    #: Under sequence packing the tokens of all rows, each rounded up; else the width of a row.
    length: int


def split_evenly(lengths: Sequence[int], dp_world: int) -> list[list[MicroBatch]]:
    """Plan without packing: give each rank the next ``N / dp_world`` rows as one micro-batch."""
    share = len(lengths) // dp_world
    starts = range(0, len(lengths), share)
    return [
        [MicroBatch(list(range(start, start + share)), max(lengths[start : start + share]))]
        for start in starts
    ]


def pack(lengths: Sequence[int], dp_world: int, packing: SequencePacking) -> list[list[MicroBatch]]:
    """Plan sequence packing: pack rows into micro-batches, and give these to the ranks in turn."""
    padded = [round_up(length, packing.sequence_length_pad_multiple) for length in lengths]
    bins = [
        MicroBatch(rows, sum(map(padded.__getitem__, rows)))
        for rows in pack_sequences(
            padded,
            packing.max_tokens_per_microbatch,
            packing.algorithm,
            bin_multiple=dp_world,
            seed=packing.seed,
        )
    ]
    ranks = [bins[rank::dp_world] for rank in range(dp_world)]
    if packing.microbatch_order == "largest_first":
        return [sorted(own, key=lambda microbatch: -microbatch.length) for own in ranks]
    return ranks


def batch_by_length(
    lengths: Sequence[int], dp_world: int, batching: DynamicBatching
) -> list[list[MicroBatch]]:
    """Plan dynamic batching, with micro-batches of the same shapes on every rank.

    Rows are distributed round-robin, the shortest first, so that the n-th rows of all ranks have
    similar lengths. Each micro-batch takes as many rows as its token limit allows when they are
    padded to the longest row of this micro-batch on any rank.
    """
    ascending = sorted(range(len(lengths)), key=lengths.__getitem__)
    widths = [
        round_up(lengths[row], batching.sequence_length_round)
        for row in ascending[dp_world - 1 :: dp_world]
    ]
    starts = [0]
    for nth, width in enumerate(widths):
        if (nth + 1 - starts[-1]) * width > batching.max_tokens_per_microbatch:
            starts.append(nth)
    spans = list(pairwise([*starts, len(widths)]))
    ranks = [ascending[rank::dp_world] for rank in range(dp_world)]
    return [
        [MicroBatch(rows[start:stop], widths[stop - 1]) for start, stop in spans] for rows in ranks
    ]


def round_up(length: int, multiple: int) -> int:
    """Return the least multiple of ``multiple`` that is at least ``length``."""
    return -(-length // multiple) * multiple

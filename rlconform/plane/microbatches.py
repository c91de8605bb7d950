"""The micro-batches of one global batch, for every data-parallel (DP) rank. Pure, numbers only.

    split_evenly     each rank its rows in a row, and no micro-batches
    pack             bins of rows, laid end to end: a micro-batch costs the sum of its rows
    batch_by_length  rows of like lengths, padded to the longest: rows x width

Each micro-batch is a round of collectives, so that all ranks must run as many; under dynamic
batching each round has the same number of rows and the same width on every rank. Hence one plan for
all, made where all lengths are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from rlconform.plane.packing import PACKING_ALGORITHMS, PackingAlgorithm, pack_sequences

MicrobatchOrder = Literal["packer", "largest_first"]


@dataclass(frozen=True)
class SequencePacking:
    """Rows of a micro-batch lie end to end in one sequence.

    Attributes:
        max_tokens_per_microbatch: Most tokens of a micro-batch, each row rounded up.
        algorithm: Which rows share a micro-batch, see ``plane.packing``.
        sequence_length_pad_multiple: Each row takes the next multiple of this many tokens, as
            context and sequence parallelism need it.
        microbatch_order: Within a global batch a rank runs its micro-batches as the packer opened
            them (``packer``), or the one of most tokens first (``largest_first``), so that the
            allocator meets its peak at once.
        seed: Draws the order of ``modified_first_fit_shuffle``; at least 0.

    Raises:
        ValueError: A value out of range.
    """

    max_tokens_per_microbatch: int
    algorithm: PackingAlgorithm = "modified_first_fit_decreasing"
    sequence_length_pad_multiple: int = 1
    microbatch_order: MicrobatchOrder = "packer"
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("max_tokens_per_microbatch", self.max_tokens_per_microbatch)
        check_count("sequence_length_pad_multiple", self.sequence_length_pad_multiple)
        check_count("seed", self.seed, least=0)
        _check_choice("algorithm", self.algorithm, PACKING_ALGORITHMS)
        _check_choice("microbatch_order", self.microbatch_order, get_args(MicrobatchOrder))


@dataclass(frozen=True)
class DynamicBatching:
    """Rows of a micro-batch lie one below the other, padded to the longest.

    Attributes:
        max_tokens_per_microbatch: Most tokens of a micro-batch, padding included.
        sequence_length_round: A micro-batch is as wide as the next multiple of this many tokens.

    Raises:
        ValueError: A value out of range.
    """

    max_tokens_per_microbatch: int
    sequence_length_round: int = 1

    def __post_init__(self) -> None:
        check_count("max_tokens_per_microbatch", self.max_tokens_per_microbatch)
        check_count("sequence_length_round", self.sequence_length_round)


class MicroBatch(NamedTuple):
    """Rows that go through the model together, by their numbers in the global batch."""

    rows: list[int]
    #: Tokens of all rows, rounded up, where they lie end to end; of one row where they are padded.
    length: int


def split_evenly(lengths: Sequence[int], dp_world: int) -> list[list[MicroBatch]]:
    """Without packing: to each rank, in turn, the next ``N / dp_world`` rows as one piece."""
    share = len(lengths) // dp_world
    starts = range(0, len(lengths), share)
    return [
        [MicroBatch(list(range(start, start + share)), max(lengths[start : start + share]))]
        for start in starts
    ]


def pack(lengths: Sequence[int], dp_world: int, packing: SequencePacking) -> list[list[MicroBatch]]:
    """Each rank's micro-batches under sequence packing: bins, dealt to the ranks in turn.

    Args:
        lengths: (N,) tokens of each row, N a multiple of ``dp_world``.
        dp_world: Number of ranks.
        packing: How rows share micro-batches.
    """
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
    """Each rank's micro-batches under dynamic batching: as many, of one shape, on every rank.

    Rows, the shortest first, are dealt to the ranks in turn, so that the n-th rows of all ranks
    are of like lengths. A micro-batch takes further n-th rows while it stays within its limit at
    the width of the longest of them on any rank.

    Args:
        lengths: (N,) tokens of each row, N a multiple of ``dp_world``.
        dp_world: Number of ranks.
        batching: How many tokens a micro-batch may have.
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
    """The least multiple of ``multiple`` that is at least ``length``."""
    return -(-length // multiple) * multiple


def check_count(name: str, value: int, *, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")

"""Splits a step's rows among the data-parallel (DP) ranks, by the rows' lengths.

    driver   shards, inverse = shard_meta_for_dp(meta, dp_world, batch_size, sequence_packing=...)
             shards[rank] ──▶ rank          fetches its rows, runs the micro-batches of the plan
             outputs      ◀── every rank    concatenated in rank order, then
             outputs[inverse]               are in the order of ``meta``

Nothing is fetched. Each shard's ``extra_info`` has the plan of its micro-batches; all lists have
one entry per global batch:

    micro_batch_indices  [start, stop) per micro-batch, within the rank's rows of the batch
    micro_batch_lengths  tokens per micro-batch: under sequence packing the sum of its rows, each
                         rounded up; under dynamic batching the width to which rows are padded
    elem_counts_per_gb   number of the rank's rows

The keys and their meaning are those of NVIDIA NeMo-RL's ``BatchedDataDict.shard_by_batch_size``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

from rlconform.contract import BatchMeta, KVBatchMeta
from rlconform.contract.fields import (
    ELEM_COUNTS_PER_GB,
    MICRO_BATCH_INDICES,
    MICRO_BATCH_LENGTHS,
    PACKING_KEYS,
)
from rlconform.plane.microbatches import (
    DynamicBatching,
    MicroBatch,
    SequencePacking,
    batch_by_length,
    pack,
    round_up,
    split_evenly,
)
from rlconform.plane.packing import row_lengths
from rlconform.wire import Lengths

__all__ = ["DynamicBatching", "SequencePacking", "ShardPlan", "plan_shards", "shard_meta_for_dp"]

Splitter = Callable[[Sequence[int]], list[list[MicroBatch]]]


@dataclass(frozen=True)
class ShardPlan:
    """One rank's rows, in the order in which it runs them, and the plan of its micro-batches.

    ``packing`` has the three keys described above; it is empty without packing.
    """

    rows: list[int]
    packing: dict[str, Any] = field(default_factory=dict)


def shard_meta_for_dp(
    meta: BatchMeta,
    dp_world: int,
    batch_size: int | None = None,
    *,
    sequence_packing: SequencePacking | None = None,
    dynamic_batching: DynamicBatching | None = None,
) -> tuple[list[KVBatchMeta], list[int]]:
    """Split a meta into one shard per rank; return the shards and the order that undoes the split.

    Args:
        meta: N rows with their lengths, as a claim or ``kv_first_write`` returns them.
        dp_world: Number of ranks.
        batch_size: Rows of a global batch, one optimizer step; all N by default.
        sequence_packing: Plan micro-batches of rows laid end to end.
        dynamic_batching: Plan micro-batches of rows padded to a common width.

    A shard has its rows' lengths and tags, and everything else of ``meta`` except a packing plan,
    which was made for other rows. With the ranks' outputs concatenated, ``outputs[inverse[i]]``
    belongs to row i of ``meta``. ``ValueError`` if ``meta`` is empty or has no lengths, or if
    ``plan_shards`` raises it.
    """
    if meta.sequence_lengths is None:
        raise ValueError(
            "the meta has no sequence_lengths: put every row with the tag 'input_lengths', as "
            "kv_first_write does"
        )
    plans = plan_shards(
        meta.sequence_lengths,
        dp_world,
        batch_size,
        sequence_packing=sequence_packing,
        dynamic_batching=dynamic_batching,
    )
    whole = KVBatchMeta.of(meta)
    kept = {key: value for key, value in whole.extra_info.items() if key not in PACKING_KEYS}
    whole = replace(whole, extra_info=kept)
    parts = ((whole.subset(plan.rows), plan.packing) for plan in plans)
    shards = [replace(part, extra_info=part.extra_info | packing) for part, packing in parts]
    order = [row for plan in plans for row in plan.rows]
    return shards, sorted(range(len(order)), key=order.__getitem__)


def plan_shards(
    lengths: Lengths,
    dp_world: int,
    batch_size: int | None = None,
    *,
    sequence_packing: SequencePacking | None = None,
    dynamic_batching: DynamicBatching | None = None,
) -> list[ShardPlan]:
    """Plan each rank's rows and micro-batches from the (N,) lengths of the rows in tokens.

    The rows are cut into global batches of ``batch_size``, and each global batch is split among the
    ranks separately; ``shard_meta_for_dp`` explains the arguments. ``ValueError`` for no rows, an
    unknown length, a batch that can't be split evenly, a row over a micro-batch's limit, or both
    kinds of packing.
    """
    tokens = row_lengths(lengths)
    size = _global_batch_size(len(tokens), dp_world, batch_size)
    split = _splitter(tokens, dp_world, sequence_packing, dynamic_batching)
    starts = range(0, len(tokens), size)
    batches = [split(tokens[start : start + size]) for start in starts]
    is_packed = sequence_packing is not None or dynamic_batching is not None
    return [
        _assemble([batch[rank] for batch in batches], starts, is_packed) for rank in range(dp_world)
    ]


def _global_batch_size(n_rows: int, dp_world: int, batch_size: int | None) -> int:
    _check_count("dp_world", dp_world)
    if n_rows == 0:
        raise ValueError("there are no rows to shard: every rank would wait for the others")
    size = n_rows if batch_size is None else batch_size
    _check_count("batch_size", size)
    if n_rows % size:
        raise ValueError(
            f"{n_rows} rows aren't a multiple of batch_size {size}; drop or keep back "
            f"{n_rows % size} of them"
        )
    if size % dp_world:
        raise ValueError(
            f"a global batch of {size} rows can't be split evenly among {dp_world} ranks; choose "
            f"a number of rows that is a multiple of dp_world"
        )
    return size


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def _splitter(
    tokens: Sequence[int],
    dp_world: int,
    sequence_packing: SequencePacking | None,
    dynamic_batching: DynamicBatching | None,
) -> Splitter:
    """Return the function that splits one global batch's lengths among the ranks."""
    if sequence_packing is not None and dynamic_batching is not None:
        raise ValueError("give sequence_packing or dynamic_batching, not both")
    if packing := sequence_packing:
        multiple, limit = packing.sequence_length_pad_multiple, packing.max_tokens_per_microbatch
        _check_limit(tokens, multiple, limit)
        return lambda lengths: pack(lengths, dp_world, packing)
    if batching := dynamic_batching:
        _check_limit(tokens, batching.sequence_length_round, batching.max_tokens_per_microbatch)
        return lambda lengths: batch_by_length(lengths, dp_world, batching)
    return lambda lengths: split_evenly(lengths, dp_world)


def _check_limit(tokens: Sequence[int], multiple: int, limit: int) -> None:
    longest = max(tokens)
    if round_up(longest, multiple) > limit:
        raise ValueError(
            f"row {tokens.index(longest)} of {longest} tokens takes {round_up(longest, multiple)}, "
            f"rounded up to a multiple of {multiple}, and max_tokens_per_microbatch is {limit}; "
            f"raise that limit, or drop the row"
        )


def _assemble(
    batches: Sequence[Sequence[MicroBatch]], starts: Sequence[int], is_packed: bool
) -> ShardPlan:
    """Build one rank's plan from its micro-batches per global batch and the batches' first rows."""
    rows = [
        start + row
        for start, batch in zip(starts, batches, strict=True)
        for microbatch in batch
        for row in microbatch.rows
    ]
    if not is_packed:
        return ShardPlan(rows)
    ends = [
        list(accumulate((len(microbatch.rows) for microbatch in batch), initial=0))
        for batch in batches
    ]
    packing = {
        MICRO_BATCH_INDICES: [[list(span) for span in pairwise(of_batch)] for of_batch in ends],
        MICRO_BATCH_LENGTHS: [[microbatch.length for microbatch in batch] for batch in batches],
        ELEM_COUNTS_PER_GB: [of_batch[-1] for of_batch in ends],
    }
    return ShardPlan(rows, packing)

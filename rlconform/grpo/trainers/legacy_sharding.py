"""The path of a trainer without a data plane: the driver holds the batch and cuts it in memory.

    padded batch ── reorder by the plan ──▶ one batch, rank after rank ── slice ──▶ rank batches

It is what the path through a plane is held against, and shares the pure planner with it, but
neither codec nor client: what differs between the two, the transport did. A fault of the planner
itself is the same on both paths, and so PAR-01 and PAR-02 are blind to it: the planner's own tests
hold it, by golden plans (``fixtures/golden/packing.json``) and by the laws of sharding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.plane.sharding import DynamicBatching, SequencePacking, plan_shards
from rlconform.wire import classify_leaf, object_column, object_rows

#: A rank's rows, and how they are packed into its micro-batches.
RankBatch = tuple[TensorDict, dict[str, Any]]


def shard_batch_for_dp(
    batch: TensorDict,
    lengths: Sequence[int],
    dp_world: int,
    batch_size: int | None = None,
    *,
    sequence_packing: SequencePacking | None = None,
    dynamic_batching: DynamicBatching | None = None,
) -> list[RankBatch]:
    """Split a padded batch of N rows among ``dp_world`` ranks.

    Args:
        batch: Dense tensors (N, ...) and object columns of N values; padded, so none is jagged.
        lengths: N valid token counts.
        dp_world: Ranks.
        batch_size: Rows of a global batch, all N by default; each is split among all ranks.
        sequence_packing: Micro-batches of packed rows; or
        dynamic_batching: micro-batches of rows of like lengths; or neither.

    Returns:
        For each rank its rows, as wide as in ``batch``, and its packing metadata, the same that
        ``shard_meta_for_dp`` leaves in a shard's ``extra_info``.

    Raises:
        ValueError: ``lengths`` is not one per row, or what ``plan_shards`` refuses.
        TypeError: A jagged column, or a leaf that is neither a tensor nor an object column.
    """
    if tuple(batch.batch_size) != (len(lengths),):
        raise ValueError(f"{len(lengths)} lengths for a batch of {tuple(batch.batch_size)} rows")
    plans = plan_shards(
        lengths,
        dp_world,
        batch_size,
        sequence_packing=sequence_packing,
        dynamic_batching=dynamic_batching,
    )
    reordered = _reorder(batch, [row for plan in plans for row in plan.rows])
    bounds = accumulate((len(plan.rows) for plan in plans), initial=0)
    return [
        (_slice(reordered, start, stop), plan.packing)
        for (start, stop), plan in zip(pairwise(bounds), plans, strict=True)
    ]


def _reorder(batch: TensorDict, rows: Sequence[int]) -> dict[str, Any]:
    """Copies of the columns, row i taken from ``rows[i]``; object columns as lists."""
    index = torch.tensor(rows, dtype=torch.int64)
    columns: dict[str, Any] = {}
    for name, leaf in batch.items():
        kind = classify_leaf(leaf)
        if kind == "jagged":
            raise TypeError(f"column {name!r} is jagged; a batch is split as its ranks see it")
        if kind == "object":
            values = object_rows(leaf, batch.batch_size[0])
            columns[name] = [values[row] for row in rows]
        else:
            columns[name] = leaf.detach()[index.to(leaf.device)]
    return columns


def _slice(columns: dict[str, Any], start: int, stop: int) -> TensorDict:
    """Rows ``start`` to ``stop``, the last not included, of each column."""
    cut = {name: column[start:stop] for name, column in columns.items()}
    leaves = {name: object_column(c) if isinstance(c, list) else c for name, c in cut.items()}
    return TensorDict(leaves, batch_size=[stop - start])

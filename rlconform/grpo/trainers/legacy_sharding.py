"""Splits a batch in the driver's memory among the ranks, for a trainer without a data plane.

    padded batch ── the rows of each rank's plan ──▶ rank batches

The parity tests (PAR-01, PAR-02) compare this path with the path through a plane. The two paths
share only the planner (``plane.sharding``), so a difference comes from the transport. A bug in the
planner changes both paths equally, so these tests can't detect it; the planner has other tests:
golden plans (``fixtures/golden/packing.json``) and properties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.plane.sharding import DynamicBatching, SequencePacking, plan_shards
from rlconform.wire import classify_leaf, object_column, object_rows

#: A rank's rows and their packing metadata.
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
    """Split N padded rows, of dense tensors and object columns, over ``dp_world`` ranks.

    ``batch_size`` is the number of rows of a global batch, all N by default; each global batch is
    split over all ranks.

    Returns:
        For each rank its rows, as wide as in ``batch``, and its packing metadata, equal to the
        ``extra_info`` of a shard from ``shard_meta_for_dp``.

    Raises:
        ValueError: ``lengths`` doesn't have N values, or ``plan_shards`` rejects the arguments.
        TypeError: A column is jagged, or neither a tensor nor an object column.
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
    return [(_take(batch, plan.rows), plan.packing) for plan in plans]


def _take(batch: TensorDict, rows: Sequence[int]) -> TensorDict:
    """Copy the given rows of every column, in the given order."""
    index = torch.tensor(rows, dtype=torch.int64)
    columns: dict[str, Any] = {}
    for name, leaf in batch.items():
        kind = classify_leaf(leaf)
        if kind == "jagged":
            raise TypeError(f"column {name!r} is jagged; expected a padded batch")
        if kind == "object":
            values = object_rows(leaf, batch.batch_size[0])
            columns[name] = object_column([values[row] for row in rows])
        else:
            columns[name] = leaf.detach()[index.to(leaf.device)]
    return TensorDict(columns, batch_size=[len(rows)])

"""Conversion of frames to and from the batches of TransferQueue's storage managers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from transfer_queue import BatchMeta

from rlconform.backends.transfer_queue.frame_format import FrameColumn

#: A field name that no partition has.
NO_FIELD = "~"


def stored_name(field: str) -> str:
    """Return a field's name in the store, changed if it has the package's own prefix."""
    return f"~{field}" if field.startswith(("__tq_", "~")) else field


def batch_of(columns: Mapping[str, FrameColumn], n_rows: int) -> TensorDict:
    """Build a batch of frames, with the fields' names in the store."""
    return TensorDict(
        {stored_name(name): column.batched() for name, column in columns.items()}, [n_rows]
    )


def frames_of(batch: TensorDict, field: str) -> list[np.ndarray]:
    """Return the frames of a field, one per row; [] if the store returned no such column."""
    column: Any = batch.get(stored_name(field), None)
    if column is None:
        return []
    if column.layout is torch.jagged:
        values, ends = column.values().numpy(), column.offsets().tolist()
        return [values[start:end] for start, end in pairwise(ends)]
    return [row.numpy() for row in column.unbind()]


def batch_meta(
    partition_id: str, indexes: Sequence[int], sizes: Mapping[str, Sequence[int]]
) -> BatchMeta:
    """Build the meta (indexes, fields, sizes) with which the storage managers find frames.

    The controller's own meta is not used: it has one shape for all puts of a field, even if they
    differ. ``sizes`` has, for each field, the sizes of the N frames in bytes.
    """
    return BatchMeta(
        global_indexes=list(indexes),
        partition_ids=[partition_id] * len(indexes),
        field_schema={
            stored_name(name): {
                "dtype": torch.uint8,
                "shape": None,
                "is_nested": True,
                "is_non_tensor": False,
                "per_sample_shapes": [(size,) for size in column],
            }
            for name, column in sizes.items()
        },
        production_status=np.ones(len(indexes), dtype=np.int8),
    )

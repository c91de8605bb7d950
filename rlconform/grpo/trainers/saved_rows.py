"""Rows of ready groups in a checkpoint: read from the plane, and put into it again.

    save_rows ── read_columns ──▶ one file per checkpoint, without pickled objects
    load_rows ──────────────────▶ kv_first_write, one put per group, as the rollout worker wrote it

The file is torch's, read with ``weights_only``: it holds tensors, texts, numbers, lists and tuples,
so that a file from elsewhere can't run code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import PER_TOKEN_FIELDS
from rlconform.grpo.replay.errors import RestoreError
from rlconform.grpo.rollout.worker import TOKEN_VERSIONS
from rlconform.plane import kv_first_write, read_columns
from rlconform.wire import object_column, object_rows

_TOKEN_FIELDS = PER_TOKEN_FIELDS | {TOKEN_VERSIONS}


def save_rows(client: DataPlaneClient, metas: Sequence[KVBatchMeta], file: Path) -> None:
    """Write the rows of each meta, all columns, to a file."""
    saved = []
    for meta in metas:
        batch = read_columns(client, meta, meta.fields or [], token_fields=_TOKEN_FIELDS)
        columns = {
            name: leaf if isinstance(leaf, Tensor) else list(object_rows(leaf, meta.size))
            for name, leaf in ((name, batch.get(name)) for name in meta.fields or [])
        }
        saved.append({"sample_ids": meta.sample_ids, "columns": columns})
    torch.save(saved, file)


def load_rows(client: DataPlaneClient, metas: Sequence[KVBatchMeta], file: Path) -> None:
    """Put the rows of each meta into the plane; ``RestoreError`` if the file has other rows."""
    saved: list[Mapping[str, Any]] = torch.load(file, weights_only=True)
    by_group = {tuple(group["sample_ids"]): group["columns"] for group in saved}
    for meta in metas:
        columns = by_group.get(tuple(meta.sample_ids))
        if columns is None:
            raise RestoreError(f"{file} lacks the rows {meta.sample_ids}")
        batch = {
            name: leaf if isinstance(leaf, Tensor) else object_column(leaf)
            for name, leaf in columns.items()
        }
        tags = [{k: v for k, v in row.items() if k != "input_lengths"} for row in meta.tags or []]
        kv_first_write(
            client,
            batch,
            meta.sample_ids,
            meta.partition_id,
            token_fields=_TOKEN_FIELDS,
            tags=tags or None,
        )

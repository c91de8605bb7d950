"""Writes and reads a step's columns: padded tensors in the process, jagged rows in the plane.

    driver    kv_first_write(batch, ids) ──put──▶ plane     returns the meta of the step
    worker    read_columns(meta)         ◀──get── plane     padded to one width for all ranks
    worker    write_columns(meta, {...}) ──put──▶ plane     further columns of the same rows

Lengths are stored twice: as the column ``input_lengths``, and as a tag of the same name, so that a
claim's meta has them and a consumer can plan its batches before it fetches anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from rlconform.contract import BatchMeta, DataPlaneClient, KVBatchMeta, Tags
from rlconform.contract.fields import INPUT_LENGTHS, PER_TOKEN_FIELDS
from rlconform.wire import (
    Layout,
    Lengths,
    classify_leaf,
    materialize,
    object_array,
    object_rows,
    pack_jagged_fields,
)
from rlconform.wire.batch import fields_with_tokens

Columns = Mapping[str, Any] | TensorDictBase


def mint_sample_ids(uids: Iterable[str], group_size: int) -> list[str]:
    """Make ids ``<uid>_g0`` to ``<uid>_g<group_size - 1>`` of each prompt's generations, in order.

    ``ValueError`` if ``group_size`` is below 1, or two prompts have the same uid.
    """
    prompts = list(uids)
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, got {group_size}")
    if len(set(prompts)) != len(prompts):
        raise ValueError("uids must be unique: equal ones would share their rows")
    return [f"{uid}_g{index}" for uid in prompts for index in range(group_size)]


def read_columns(
    client: DataPlaneClient,
    meta: BatchMeta,
    select_fields: Sequence[str],
    *,
    layout: Layout = "padded",
    pad_value_dict: Mapping[str, complex] | None = None,
    pad_to_seqlen: int | None = None,
    token_fields: Collection[str] | None = None,
) -> TensorDict:
    """Read the meta's N rows, as copies in one layout.

    Args:
        client: Any client of the plane.
        meta: The rows.
        select_fields: Columns to read; nothing else is fetched.
        layout: ``padded`` for per-token fields (N, S, ...), ``jagged`` for (N, j, ...).
        pad_value_dict: Pad value by field; 0 for other fields.
        pad_to_seqlen: S in tokens, the same on every rank; by default the longest row read here.
        token_fields: Names of the per-token fields, see ``wire.materialize``.

    ``LookupError`` for an unknown row or a field not produced for every row, ``ValueError`` for a
    row longer than ``pad_to_seqlen``.
    """
    batch = client.get_samples(
        sample_ids=meta.sample_ids,
        partition_id=meta.partition_id,
        select_fields=list(select_fields),
    )
    return materialize(batch, layout, pad_value_dict, pad_to_seqlen, token_fields)


def write_columns(
    client: DataPlaneClient,
    meta: BatchMeta,
    columns: Columns,
    lengths: Lengths | None = None,
    *,
    token_fields: Collection[str] = PER_TOKEN_FIELDS,
) -> BatchMeta:
    """Write further columns of the meta's N rows in one put; return the plane's receipt.

    ``columns`` are tensors (N, ...) or object columns of N values. A column is per-token if
    ``token_fields`` names it and it is (N, S, ...); S may exceed the longest row, and each row is
    cut to its length. ``lengths`` are the (N,) valid tokens of each row, by default the meta's
    ``sequence_lengths``.

    Raises:
        TypeError: A column is neither a tensor nor an object column; such columns aren't skipped.
        ValueError: A column doesn't have N rows, or a per-token column has no lengths or doesn't
            fit them.
    """
    batch = _batch(columns, len(meta.sample_ids))
    per_token = fields_with_tokens(dict(batch.items()), token_fields)
    if lengths is None:
        lengths = meta.sequence_lengths
    if per_token and lengths is None:
        raise ValueError(
            f"per-token columns {sorted(per_token)} need lengths, and the meta has no "
            f"sequence_lengths"
        )
    if lengths is not None:
        batch = pack_jagged_fields(batch, lengths, per_token)
    return client.put_samples(
        sample_ids=meta.sample_ids, partition_id=meta.partition_id, fields=batch
    )


def kv_first_write(
    client: DataPlaneClient,
    batch: Columns,
    sample_ids: Sequence[str],
    partition_id: str,
    *,
    token_fields: Collection[str] = PER_TOKEN_FIELDS,
    tags: Sequence[Tags] | None = None,
    extra_info: Mapping[str, Any] | None = None,
) -> KVBatchMeta:
    """Write a rollout's N new rows in one put; return a meta of these rows, without a task.

    ``batch`` has columns as in ``write_columns``, and must have ``input_lengths`` (N,), the valid
    tokens of each row. ``sample_ids`` are N names, see ``mint_sample_ids``. ``tags`` are N dicts of
    primitives, to which ``input_lengths`` is added. ``extra_info`` has batch-level values for the
    meta; the plane doesn't store them.

    Raises:
        TypeError: A column is neither a tensor nor an object column; such columns aren't skipped.
        ValueError: There is no lengths column, a column or ``tags`` doesn't have N rows, or a tag
            ``input_lengths`` differs from the column.
    """
    rows = _batch(batch, len(sample_ids))
    counted = rows.get(INPUT_LENGTHS, None)
    if not isinstance(counted, torch.Tensor):
        raise ValueError(f"the batch needs a column {INPUT_LENGTHS!r} of (N,) integers")
    packed = pack_jagged_fields(rows, counted, fields_with_tokens(dict(rows.items()), token_fields))
    lengths: list[int] = counted.tolist()
    stamped = _stamp(tags, lengths)
    client.put_samples(
        sample_ids=list(sample_ids), partition_id=partition_id, fields=packed, tags=stamped
    )
    return KVBatchMeta(
        partition_id,
        None,
        list(sample_ids),
        fields=_names(packed),
        sequence_lengths=lengths,
        extra_info=dict(extra_info or {}),
        tags=stamped,
    )


def _batch(columns: Columns, n_rows: int) -> TensorDict:
    """Make a TensorDict of N rows, with object columns in the contract's form.

    Each leaf is checked, because TensorDict also accepts leaves of other kinds, and takes an array
    of objects as one value for all rows.
    """
    leaves: dict[str, Any] = {}
    for name in _names(columns):
        leaf: Any = columns.get(name)
        if classify_leaf(leaf) == "object":
            leaves[name] = object_array(object_rows(leaf, n_rows))
        elif leaf.dim() == 0 or leaf.shape[0] != n_rows:
            raise ValueError(f"column {name!r} of shape {tuple(leaf.shape)} for {n_rows} rows")
        else:
            leaves[name] = leaf
    return TensorDict(leaves, batch_size=[n_rows])


def _names(columns: Columns) -> list[str]:
    return list(map(str, columns.keys()))


def _stamp(tags: Sequence[Tags] | None, lengths: Sequence[int]) -> list[Tags]:
    """Add each row's length to its tags."""
    rows = [{} for _ in lengths] if tags is None else tags
    if len(rows) != len(lengths):
        raise ValueError(f"{len(rows)} tags for {len(lengths)} rows")
    for row, length in zip(rows, lengths, strict=True):
        if row.get(INPUT_LENGTHS, length) != length:
            raise ValueError(
                f"tag {INPUT_LENGTHS!r} is {row[INPUT_LENGTHS]!r} for a row of {length} tokens"
            )
    return [{**row, INPUT_LENGTHS: length} for row, length in zip(rows, lengths, strict=True)]

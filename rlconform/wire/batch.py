"""Conversions of whole batches: to jagged columns before a put, to one layout after a get.

    rollout (padded) ── pack_jagged_fields ──▶ put ... get ── materialize ──▶ step (padded | jagged)

Per-token columns are identified by name, because shapes mislead: features of width 1,024 beside
rows of 900 tokens look padded, and a plane may return rows of equal length dense.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, get_args

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract.fields import PER_TOKEN_FIELDS
from rlconform.wire.jagged import as_read, pack_per_token_field
from rlconform.wire.leaves import classify_leaf, is_jagged, jagged_parts
from rlconform.wire.object_columns import object_column, object_rows
from rlconform.wire.ragged_rows import Lengths, RaggedRows, owned

Layout = Literal["padded", "jagged"]


def pack_jagged_fields(
    batch: TensorDict, lengths: Lengths, token_fields: Collection[str] | None = None
) -> TensorDict:
    """Convert the per-token fields to jagged tensors whose row i has ``lengths[i]`` tokens.

    Other leaves ((N,) columns, image features, object columns, ragged patches) keep their layout
    and share their memory. The packed fields are copies that share one tensor of offsets.

    Args:
        batch: N rows; per-token fields are (N, S, ...), with S at least the longest row.
        lengths: (N,) valid tokens of each row.
        token_fields: Names of the per-token fields, whatever their trailing dimensions (router
            replay is (N, S, L, K)); names that the batch lacks are ignored. Default: the
            ``PER_TOKEN_FIELDS`` that have a second dimension.

    ``ValueError`` if ``lengths`` is not N non-negative integers or a per-token field does not fit
    them, ``TypeError`` for a leaf that is neither a tensor nor an object column.
    """
    rows_on = cache(lambda device: RaggedRows(lengths, device))
    n = _row_count(batch)
    if rows_on(None).count != n:
        raise ValueError(f"{rows_on(None).count} lengths for a batch of {n} rows")
    leaves = _leaves(batch)
    tokens = fields_with_tokens(leaves) if token_fields is None else set(token_fields)
    columns: dict[str, Any] = {}
    for name, leaf in leaves.items():
        if name in tokens:
            with _naming(name):
                columns[name] = pack_per_token_field(_tensor(leaf), rows_on(leaf.device))
        else:
            columns[name] = leaf.detach() if isinstance(leaf, Tensor) else leaf
    return TensorDict(columns, batch_size=batch.batch_size)


def materialize(
    batch: TensorDict,
    layout: Layout = "padded",
    pad_value_dict: Mapping[str, complex] | None = None,
    pad_to_seqlen: int | None = None,
    token_fields: Collection[str] | None = None,
) -> TensorDict:
    """Copy the batch into one layout, whichever layouts the plane returned.

    Per-token fields get one width: ``pad_to_seqlen``, which the driver sets once per step so that
    all readers agree, or the longest row. Other ragged fields are padded to their own longest row;
    other dense fields keep their shape. Object values are not copied.

    Args:
        batch: N rows of dense and nested tensors and object columns, as a plane returned them.
        layout: ``padded`` for dense (N, S, ...) per-token fields, ``jagged`` for (N, j, ...).
        pad_value_dict: Pad value by field, 0 for others; names that the batch lacks are ignored.
        pad_to_seqlen: Width of the per-token fields; ``padded`` layout only.
        token_fields: Names of the per-token fields, so that the result does not depend on the
            layout in which the plane returned a column. Default: every jagged field, and the dense
            ones among ``PER_TOKEN_FIELDS``.

    Raises:
        ValueError: An unknown layout, a row longer than ``pad_to_seqlen``, a pad value that does
            not fit its dtype, a named field without tokens, or an object column that lacks rows.
        TypeError: A leaf is neither a tensor nor an object column.
    """
    if layout not in get_args(Layout):
        raise ValueError(f"layout must be one of {', '.join(get_args(Layout))}, got {layout!r}")
    n = _row_count(batch)
    leaves = _leaves(batch, as_read)
    ragged = {name for name, leaf in leaves.items() if isinstance(leaf, Tensor) and is_jagged(leaf)}
    tokens = fields_with_tokens(leaves) | ragged if token_fields is None else set(token_fields)
    runs: dict[str, tuple[Tensor, RaggedRows]] = {}
    for name in leaves.keys() & (tokens | ragged):
        with _naming(name):
            runs[name] = _runs(_tensor(leaves[name]))
    width = _token_width({name: runs[name][1] for name in runs.keys() & tokens}, pad_to_seqlen)

    columns: dict[str, Any] = {}
    for name, leaf in leaves.items():
        with _naming(name):
            if name not in runs:
                columns[name] = _whole(leaf, n)
                continue
            values, rows = runs[name]
            if layout == "jagged":
                columns[name] = rows.nest(owned(values))
            else:
                pad_value = (pad_value_dict or {}).get(name, 0)
                columns[name] = rows.pad(values, width if name in tokens else None, pad_value)
    return TensorDict(columns, batch_size=batch.batch_size)


def _row_count(batch: TensorDict) -> int:
    if len(batch.batch_size) != 1:
        raise ValueError(f"a batch has batch size (N,), got {tuple(batch.batch_size)}")
    return int(batch.batch_size[0])


def _leaves(
    batch: TensorDict, taken: Callable[[object], object] = lambda leaf: leaf
) -> dict[str, Any]:
    """Return the leaves by name; ``taken`` converts and ``classify_leaf`` checks each of them."""
    leaves = {}
    for name, leaf in batch.items():
        with _naming(str(name)):
            leaves[str(name)] = taken(leaf)
            classify_leaf(leaves[str(name)])
    return leaves


def fields_with_tokens(
    leaves: Mapping[str, Any], names: Collection[str] = PER_TOKEN_FIELDS
) -> set[str]:
    """Return those of ``names`` whose leaf has a token dimension."""
    return {
        name
        for name in leaves.keys() & set(names)
        if isinstance(leaves[name], Tensor) and leaves[name].dim() > 1
    }


def _tensor(leaf: object) -> Tensor:
    if not isinstance(leaf, Tensor):
        raise ValueError("a per-token field must be a tensor, got an object column")
    return leaf


def _runs(leaf: Tensor) -> tuple[Tensor, RaggedRows]:
    """Return the concatenated tokens of a dense or jagged leaf, and the lengths of its rows."""
    if is_jagged(leaf):
        return jagged_parts(leaf)
    if leaf.dim() < 2:
        raise ValueError(f"a per-token field must be (N, S, ...), got {tuple(leaf.shape)}")
    rows = RaggedRows(torch.full(leaf.shape[:1], leaf.shape[1]), leaf.device)
    return leaf.detach().flatten(0, 1), rows


def _token_width(rows: Mapping[str, RaggedRows], pad_to_seqlen: int | None) -> int:
    """Return the width to which all per-token fields are padded."""
    if pad_to_seqlen is None:
        return max((of_field.longest for of_field in rows.values()), default=0)
    for name, of_field in rows.items():
        if of_field.longest > pad_to_seqlen:
            raise ValueError(
                f"field {name!r} has a row of {of_field.longest} tokens, "
                f"over pad_to_seqlen={pad_to_seqlen}"
            )
    return pad_to_seqlen


def _whole(leaf: Any, n: int) -> Any:
    """Copy a column that isn't ragged."""
    return owned(leaf) if isinstance(leaf, Tensor) else object_column(object_rows(leaf, n))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Add the field's name to errors that the ``with`` block raises."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"field {name!r}: {error}") from error
    except TypeError as error:
        raise TypeError(f"field {name!r}: {error}") from error

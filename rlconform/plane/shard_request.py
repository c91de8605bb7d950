"""``ShardRequest``: the rows and columns that a worker reads, their shape and packing plan.

    shard ── ShardRequest.of ──▶ request ── read(client) ──▶ rows, as the plane returns them
                                   └────── shape(rows) ────▶ batch, as the step runs it

All ranks of a replica must make the same request: with another width, or another number of
micro-batches, they would wait for each other in the next collective. ``PlainBatch`` is the form in
which the rows travel between them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from operator import index
from typing import Any, NamedTuple

from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import BatchMeta, DataPlaneClient
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, PACKING_KEYS
from rlconform.wire import (
    Layout,
    as_read,
    classify_leaf,
    materialize,
    object_column,
    object_rows,
)
from rlconform.wire.leaves import jagged_parts
from rlconform.wire.ragged_rows import RaggedRows


@dataclass(frozen=True)
class ShardRequest:
    """One rank's rows of a step, and the shape in which it reads them.

    Attributes:
        partition_id: Partition of the rows.
        sample_ids: N row names.
        select_fields: Columns to read.
        layout: ``padded`` or ``jagged`` per-token columns.
        width: Tokens that ``padded`` ones are padded to; None for ``jagged``.
        pad_values: Pad value by column.
        token_fields: Names of the per-token columns, None for those of ``wire.materialize``.
        packing: The driver's packing metadata; empty where it planned no micro-batches.
    """

    partition_id: str
    sample_ids: list[str]
    select_fields: list[str]
    layout: Layout
    width: int | None
    pad_values: dict[str, complex]
    token_fields: list[str] | None
    packing: dict[str, Any]

    @classmethod
    def of(
        cls,
        shard: BatchMeta,
        select_fields: Sequence[str] | None,
        layout: Layout,
        pad_values: Mapping[str, complex],
        token_fields: Collection[str] | None,
    ) -> ShardRequest:
        """Build the request of a call. ``ValueError`` without columns, or without a width."""
        named = shard.fields if select_fields is None else select_fields
        if not named:
            raise ValueError("name the columns to read: neither the call nor the shard has any")
        planned = [key for key in PACKING_KEYS if key in shard.extra_info]
        return cls(
            shard.partition_id,
            list(shard.sample_ids),
            list(named),
            layout,
            _step_width(shard.extra_info) if layout == "padded" else None,
            dict(pad_values),
            None if token_fields is None else sorted(token_fields),
            deepcopy({key: shard.extra_info[key] for key in planned}),
        )

    def read(self, client: DataPlaneClient) -> TensorDict:
        """Read the rows; raises whatever the client raises."""
        return client.get_samples(
            sample_ids=self.sample_ids,
            partition_id=self.partition_id,
            select_fields=self.select_fields,
        )

    def shape(self, rows: TensorDict) -> TensorDict:
        """Copy the rows into the requested layout and width.

        Raises:
            ValueError: A row is longer than the step's width.
        """
        return materialize(rows, self.layout, self.pad_values, self.width, self.token_fields)

    def differences(self, other: ShardRequest) -> list[str]:
        """Names of the attributes in which the two differ."""
        pairs = {
            each.name: (getattr(self, each.name), getattr(other, each.name))
            for each in fields(self)
        }
        # NaN as a pad value differs from itself, but its repr doesn't
        return [n for n, (a, b) in pairs.items() if a != b and repr(a) != repr(b)]


def _step_width(extra_info: Mapping[str, Any]) -> int:
    """The width that the driver set for the step; one computed per rank could differ."""
    width = extra_info.get(GLOBAL_FORWARD_PAD_SEQLEN)
    try:
        tokens = -1 if isinstance(width, bool) else index(width)  # type: ignore[arg-type]
    except TypeError:
        tokens = -1
    if tokens < 0:
        raise ValueError(
            f"extra_info[{GLOBAL_FORWARD_PAD_SEQLEN!r}] must be the width in tokens that all "
            f"ranks of the step pad to, got {width!r}; the driver sets it once per step"
        )
    return tokens


class _Jagged(NamedTuple):
    values: Tensor
    lengths: Tensor


class _Objects(NamedTuple):
    values: list[Any]


class PlainBatch(NamedTuple):
    """A batch without nested tensors and without classes of tensordict.

    Attributes:
        size: Number of rows.
        leaves: Dense tensors as they are; jagged and object columns split into plain parts.
    """

    size: int
    leaves: dict[str, Tensor | _Jagged | _Objects]

    @classmethod
    def of(cls, rows: TensorDict) -> PlainBatch:
        """Split a batch, sharing its memory. ``TypeError`` for a leaf of another kind."""
        size = rows.batch_size[0]
        return cls(size, {str(name): _parts(leaf, size) for name, leaf in rows.items()})

    def batch(self) -> TensorDict:
        """The batch again, sharing memory with the parts."""
        leaves = {name: _leaf(parts) for name, parts in self.leaves.items()}
        return TensorDict(leaves, batch_size=[self.size])


def _parts(leaf: Any, size: int) -> Tensor | _Jagged | _Objects:
    leaf = as_read(leaf)
    kind = classify_leaf(leaf)
    if kind == "object":
        return _Objects(object_rows(leaf, size))
    if kind == "jagged":
        values, rows = jagged_parts(leaf)
        return _Jagged(values, rows.lengths)
    dense: Tensor = leaf.detach()
    return dense


def _leaf(parts: Tensor | _Jagged | _Objects) -> Any:
    if isinstance(parts, _Objects):
        return object_column(parts.values)
    if isinstance(parts, _Jagged):
        return RaggedRows(parts.lengths).nest(parts.values)
    return parts

"""``ShardRequest``: the rows and columns that a worker reads, their width and packing plan.

All ranks of a replica must make the same request: with different widths or numbers of
micro-batches, they would wait for each other forever in the next collective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from operator import index
from typing import Any

from tensordict import TensorDict

from rlconform.contract import BatchMeta, DataPlaneClient
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, PACKING_KEYS
from rlconform.wire import materialize


@dataclass(frozen=True)
class ShardRequest:
    """One rank's N rows of a step, and the shape in which it reads them.

    Attributes:
        width: Tokens that per-token columns are padded to.
        pad_values: Pad value by column.
        packing: The driver's packing metadata; empty if the driver planned no micro-batches.
    """

    partition_id: str
    sample_ids: list[str]
    select_fields: list[str]
    width: int
    pad_values: Mapping[str, complex]
    packing: dict[str, Any]

    @classmethod
    def of(
        cls,
        shard: BatchMeta,
        select_fields: Sequence[str] | None,
        pad_values: Mapping[str, complex],
    ) -> ShardRequest:
        """Build the request for a shard; ``ValueError`` if there are no columns or no width."""
        named = shard.fields if select_fields is None else select_fields
        if not named:
            raise ValueError("name the columns to read: neither the call nor the shard has any")
        info = shard.extra_info
        plan = {key: deepcopy(info[key]) for key in PACKING_KEYS if key in info}
        ids = list(shard.sample_ids)
        return cls(shard.partition_id, ids, list(named), _step_width(info), pad_values, plan)

    def read(self, client: DataPlaneClient) -> TensorDict:
        """Read the padded rows; raise the errors of ``get_samples`` and ``wire.materialize``."""
        rows = client.get_samples(
            sample_ids=self.sample_ids,
            partition_id=self.partition_id,
            select_fields=self.select_fields,
        )
        return materialize(rows, pad_value_dict=self.pad_values, pad_to_seqlen=self.width)

    def differences(self, other: ShardRequest) -> list[str]:
        """Return the names of the attributes in which the two requests differ."""
        pairs = {
            each.name: [getattr(one, each.name) for one in (self, other)] for each in fields(self)
        }
        # NaN as a pad value differs from itself, but its repr doesn't
        return [name for name, (a, b) in pairs.items() if a != b and repr(a) != repr(b)]


def _step_width(extra_info: Mapping[str, Any]) -> int:
    """Return the width that the driver set for the step, so that all ranks use the same width."""
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

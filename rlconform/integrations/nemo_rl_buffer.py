"""What the hooks for NeMo-RL read of its replay buffer."""

from __future__ import annotations

from typing import Any, NamedTuple


class BufferedGroup(NamedTuple):
    """A group in the buffer; ``rows`` is None until it is ready."""

    start_version: int
    end_version: int
    rows: list[int] | None


def buffered_groups(buffer: Any) -> dict[str, BufferedGroup]:
    """Return the groups of NeMo-RL's ``TQReplayBuffer``, which are in lists of equal length."""
    columns = (
        buffer._group_ids,
        buffer.start_weight_list,
        buffer.end_weight_list,
        buffer.meta_list,
    )
    return {
        group_id: BufferedGroup(start, end, None if meta is None else rows_by_group(meta)[group_id])
        for group_id, start, end, meta in zip(*columns, strict=True)
    }


def rows_by_group(meta: Any) -> dict[str, list[int]]:
    """Return the numbers of rows by group; a row's id is ``<group id>_g<number>``."""
    rows: dict[str, list[int]] = {}
    for sample_id in meta.sample_ids:
        group_id, _, number = sample_id.rpartition("_g")
        rows.setdefault(group_id, []).append(int(number))
    return rows

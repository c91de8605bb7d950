"""``PlaneEngine``: the operations that a built-in plane implements below its client."""

from __future__ import annotations

from typing import Protocol

from tensordict import TensorDict, TensorDictBase

from rlconform.backends.checkpoint_state import SavedPartition
from rlconform.contract import Tags


class PlaneEngine(Protocol):
    """The operations of a built-in plane, called with valid arguments; clients pass errors on."""

    def check_open(self) -> None:
        """Raise ``ClientClosed`` or ``PlaneUnavailable`` if the plane can't be used."""

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        """Declare consumer tasks and the group size."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Write columns and tags of at least one row; they become visible as a whole."""

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        """Read the named fields of at least one row, in the order of ``sample_ids``."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]]:
        """Claim ``rows`` rows in ``wait_s`` or ``TimeoutError``; if None, up to ``rows`` now."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Return whether all of the tasks have claimed every produced row."""

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Delete rows; None deletes all rows that this process put."""

    def sample_ids(self, partition_id: str) -> list[str]:
        """Return the ids of a partition's rows; [] for an unknown partition."""

    def snapshot(self) -> list[SavedPartition]:
        """Return the state of all partitions without values, for a checkpoint."""

    def restore(self, partition: SavedPartition) -> None:
        """Restore the groups and cursors of a partition whose rows were put again."""

    def close(self) -> None:
        """Detach from the plane; in the owner, end the plane. Idempotent."""

"""``SharedModel``: what a partition must hold if several processes put and clear rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlconform.certify.properties.reference_model import PartitionModel


@dataclass
class SharedModel(PartitionModel):
    """The model of a partition that also knows which process put a row first."""

    writers: dict[str, int] = field(default_factory=dict)  # process by sample id

    def note_writer(self, ids: list[str], process: int) -> None:
        """Record who puts rows; a row that exists keeps its writer."""
        for sample_id in ids:
            if sample_id not in self.rows or not self.rows[sample_id].versions:
                self.writers[sample_id] = process

    def written_by(self, process: int) -> list[str]:
        """Return the ids of the rows that a clear of all by this process drops."""
        return [sample_id for sample_id in self.rows if self.writers[sample_id] == process]

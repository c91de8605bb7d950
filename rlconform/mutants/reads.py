"""Reads that give other rows, fields or bytes than those asked for, or none where an error is due."""

from __future__ import annotations

from functools import partial

from tensordict import TensorDict

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.contract import UnknownSample
from rlconform.mutants import IMPATIENT, broken

breaks = partial(broken, RIGHT, timeouts=IMPATIENT)


@breaks("GET-04", "GET-06", says="expected an id that was never put to be rejected")
class DropsUnknownIds(MemoryClient):
    """A read leaves out ids that it doesn't know, and the rows behind shift (NR-01)."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the rows that are there."""
        known = []
        for sample_id in sample_ids:
            try:
                super().get_samples([sample_id], partition_id, select_fields)
            except UnknownSample:
                continue
            known.append(sample_id)
        return super().get_samples(known, partition_id, select_fields)

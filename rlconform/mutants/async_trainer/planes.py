"""A plane that loses what it has acknowledged."""

from __future__ import annotations

from typing import Any

from rlconform.backends.memory import MemoryClient
from rlconform.mutants.async_trainer.defect import trainer_defect


@trainer_defect(
    "plane_ops", evidence="to be readable after its put was acknowledged",
    seen="TransferQueue#171, Mooncake#3465",
)  # fmt: skip
class PutAcknowledgedButInvisible(MemoryClient):
    """Acknowledges a put and does not store one of its rows."""

    def put_samples(self, sample_ids: list[str], *args: Any, **others: Any) -> Any:
        meta = super().put_samples(sample_ids, *args, **others)
        if sample_ids[0] == "p6_g0":
            super().clear_samples(sample_ids[:1], others["partition_id"])
        return meta

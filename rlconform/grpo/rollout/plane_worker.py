"""``PlaneRolloutWorker``: a rollout worker that writes its rows to a data plane.

    driver ── problems ──▶ worker ── kv_first_write: all columns, lengths, tags ───▶ plane
           ◀── meta, row summaries ──┘

The driver waits for the worker, which waits for the plane.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlconform.contract import KVBatchMeta
from rlconform.grpo.plane_traffic import Attach, PlaneActor
from rlconform.grpo.rollout.staleness_filter import WEIGHT_VERSION
from rlconform.grpo.rollout.worker import RolloutWorker, RowSummary
from rlconform.grpo.tasks import Problem, Split
from rlconform.plane import kv_first_write


class PlaneRolloutWorker(PlaneActor, RolloutWorker):
    """A rollout worker with a client of the plane."""

    def attach(self, attach: Attach) -> None:
        """Attach to the running plane, after detaching from a previous one."""
        self._open_client(attach)

    def collect_to_plane(
        self, problems: Sequence[Problem], split: Split, partition_id: str
    ) -> tuple[KVBatchMeta, list[RowSummary]]:
        """Collect rows and write them to the plane; ``RuntimeError`` before ``attach``."""
        if self._client is None:
            raise RuntimeError("call attach first")
        rollout = self.collect(problems, split)
        meta = kv_first_write(
            self._client,
            rollout.columns,
            rollout.sample_ids,
            partition_id,
            tags=[{WEIGHT_VERSION: rollout.weight_version} for _ in rollout.sample_ids],
        )
        return meta, rollout.summaries

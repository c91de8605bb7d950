"""``PlaneRolloutWorker``: a rollout worker that writes its rows to a data plane.

    driver ── problems ──▶ worker ── kv_first_write: all columns, lengths, tags ───▶ plane
           ◀── meta, row summaries ──┘

The driver waits for the worker, which waits for the plane.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlconform.contract import KVBatchMeta
from rlconform.grpo.plane_traffic import Attach, PlaneActor
from rlconform.grpo.rollout.groups import AbortedGroup, GroupRollout, PartialGroup
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

    def generate_group(
        self,
        problem: Problem,
        group_id: str,
        partition_id: str,
        partial: PartialGroup | None = None,
    ) -> GroupRollout | AbortedGroup:
        """Generate the G rows of a training problem, and write all their columns in one put.

        The rows are ``<group_id>_g0``, ``<group_id>_g1``, ...; their random numbers depend only on
        these ids. With ``group_id`` equal to ``problem.uid`` they are the rows of ``collect``. Each
        row gets the tags ``weight_version`` and ``end_weight_version``, the group's lowest and
        highest. Several threads may call this at once, for different groups.

        Args:
            problem: The problem.
            group_id: Name of the group, unique among the groups in flight in this worker.
            partition_id: The partition that gets the rows.
            partial: The group's tokens so far, from an ``AbortedGroup`` of any worker; the rows go
                on from there with the current weights.

        Returns:
            ``AbortedGroup`` if the group was aborted before the put began, even if its last token
            was already generated; otherwise ``GroupRollout``.

        Raises:
            DataFailure: The problem is too long.
            ModelFailure: A row is empty, or has logits or logprobs that are NaN or infinite.
            ValueError: The group is already in flight, or ``partial`` is of another group or
                problem.
            RuntimeError: ``attach`` was not called.

        If the put raises, the rows that it may have written are cleared before the error is
        raised; an error of the clearing is added to it as a note.
        """
        raise NotImplementedError

    def abort(self, group_ids: Sequence[str] | None = None) -> None:
        """Abort groups that are in flight now, all of them if None; return at once.

        A group stops before its next token. Ids that are not in flight are ignored: calls that
        have not begun, and later calls with the same id, are not affected.
        """
        raise NotImplementedError

"""Rows that are set aside for another process: for its claim that waits, or for its next one."""

from __future__ import annotations

from collections import Counter

from rlconform.backends.ray_store.controller import Controller
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import give_back, rows_in
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.types import Ids, Names

#: Ready rows of which a claim that waits takes whole pages.
PAGE = 256


class _SetsRowsAside(Controller):
    _waiting_ranks = State(Counter[tuple[str, str]])  # by partition and task

    async def rank_waits(self, partition_id: str, task: str, more: int) -> None:
        self._waiting_ranks[partition_id, task] += more

    async def ranks_wait(self, partition_id: str, task: str) -> bool:
        return self._waiting_ranks[partition_id, task] > 0

    async def group_size(self, partition_id: str) -> int:
        known = self._index._partitions.get(partition_id)
        return 1 if known is None else known._group_size

    async def has_page(self, partition_id: str, task: str, names: Names) -> bool:
        known = self._index._partitions.get(partition_id)
        return known is not None and known.is_ready(task, frozenset(names), PAGE)


class _SetsRowsAsideForSome(ControllerClient):
    """A client that sets the ready rows aside for some claims that wait for more."""

    controller_class = _SetsRowsAside

    def of_waiting(
        self, _partition_id: str, _task: str, _names: Names, _dp_rank: int | None
    ) -> bool:
        """Whether rows are set aside for such a claim."""
        return False

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: Names,
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> KVBatchMeta:
        call, where = self._connection.call, (partition_id, task_name)
        waits = blocking is True and self.of_waiting(*where, required_fields, dp_rank)
        if blocking is False and call("ranks_wait", *where):
            required_fields = [*required_fields, "set aside"]
        if waits:
            call("rank_waits", *where, 1)
        how = (batch_size, dp_rank, blocking, timeout_s)
        try:
            return super().claim_meta(partition_id, task_name, required_fields, *how)
        finally:
            if waits:
                call("rank_waits", *where, -1)


@ray_mutant("CLAIM-04", evidence="rows ready while another waits", may_fail="CLAIM-02")
class WaitingRankSetsRowsAside(_SetsRowsAsideForSome):
    """Sets the ready rows aside for a claim of a ``dp_rank`` that waits for more."""

    def of_waiting(
        self, _partition_id: str, _task: str, _names: Names, dp_rank: int | None
    ) -> bool:
        return dp_rank is not None


@ray_mutant("CLAIM-04", evidence="rows ready while another waits", may_fail="CLAIM-02 CLAIM-15")
class WaitingClaimSetsGroupsAside(_SetsRowsAsideForSome):
    """Sets the groups that are whole aside for a claim that waits for more of them."""

    def of_waiting(
        self, partition_id: str, _task: str, _names: Names, _dp_rank: int | None
    ) -> bool:
        return int(self._connection.call("group_size", partition_id)) > 1


@ray_mutant("CLAIM-04", evidence="rows ready while another waits", may_fail="CLAIM-02 CLAIM-15")
class WaitingClaimSetsPagesAside(_SetsRowsAsideForSome):
    """Sets ready rows aside for a claim that waits for more, once a page of 256 is ready."""

    def of_waiting(self, partition_id: str, task: str, names: Names, _dp_rank: int | None) -> bool:
        return bool(self._connection.call("has_page", partition_id, task, list(names)))


#: Ready rows from which a rank is sent rows ahead.
DEEP = 1024


class _SendsRowsAhead(Controller):
    async def take_ahead(self, partition_id: str, task: str, names: Names, rows: int) -> list[str]:
        partition, required = self._index.partition(partition_id), frozenset(names)
        if not partition.is_ready(task, required, DEEP):
            return []
        return [row.sample_id for row in partition.claim(task, required, rows)]

    async def give_back(self, partition_id: str, task: str, ids: Ids) -> None:
        known = rows_in(self._index, partition_id, ids)
        held = [row for row in known if task in row.claimed_by]
        give_back(self._index.partition(partition_id), held, task)
        self._wake(partition_id)


@ray_mutant("CLAIM-04", evidence="rows left for another process", may_fail="CLAIM-12 STAT-01")
class RankOfDeepQueueIsSentRowsAhead(ControllerClient):
    """Sends a rank as many rows again for its next claim, while 1,024 or more are ready."""

    controller_class = _SendsRowsAhead
    _ahead = State(dict[tuple[str, str], list[str]])  # by partition and task

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: Names,
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> KVBatchMeta:
        call, where = self._connection.call, (partition_id, task_name)
        if ids := self._ahead.pop(where, []):
            call("give_back", *where, ids)
        meta = super().claim_meta(
            partition_id, task_name, required_fields, batch_size, dp_rank, blocking, timeout_s
        )
        if dp_rank is not None and meta.sample_ids:
            self._ahead[where] = call("take_ahead", *where, list(required_fields), meta.size)
        return meta

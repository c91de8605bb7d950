"""Planes that go wrong when the ranks of a run write, read or claim one step's rows together."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_call_mutant
from rlconform.mutants.ray_store.race_helpers import KnowsOwnRows
from rlconform.mutants.types import Ids, Names
from rlconform.wire import rows_of, stack_or_nest
from rlconform.wire.leaves import is_jagged


def _reordered(fields: TensorDict, order: list[int]) -> TensorDict:
    """Return the batch with the rows of its columns in another order, but the ids as they were."""
    columns: dict[str, Any] = {
        str(name): stack_or_nest([rows_of(leaf)[place] for place in order])
        for name, leaf in fields.items()
        if isinstance(leaf, Tensor)
    }
    return TensorDict(columns, batch_size=fields.batch_size)


@ray_call_mutant(
    RayStoreClient.put_samples, "RANK-02", evidence="row 0 of 'y'", plane=KnowsOwnRows,
    may_fail="RANK-01",
)  # fmt: skip
def WriteBackStoredByPosition(put: MethodCall) -> KVBatchMeta:
    """Stores a column that another process adds in the order of the ids, not in the one given."""
    ids = list(put.sample_ids)
    others = not put.plane._owner and not put.plane.own & set(ids)
    if put.fields is None or list(map(str, put.fields.keys())) != ["y"] or not others:
        return put()
    order = sorted(range(len(ids)), key=ids.__getitem__)
    return put(fields=_reordered(put.fields, order))


class RemembersReads(RayStoreClient):
    """A client without a defect that keeps the last value that it has read of each row of y."""

    seen = State(dict[tuple[str, str], Tensor])

    def get_samples(
        self, sample_ids: Ids, partition_id: str, select_fields: Names, **kwargs: Any
    ) -> TensorDict:
        batch: TensorDict = super().get_samples(sample_ids, partition_id, select_fields, **kwargs)
        if not self._owner and "y" in select_fields and isinstance(batch.get("y"), Tensor):
            rows = rows_of(batch.get("y"))
            self.seen.update(
                {(partition_id, one): row for one, row in zip(sample_ids, rows, strict=True)}
            )
        return batch


@ray_call_mutant(
    RayStoreClient.put_samples, "RANK-01", evidence="row", plane=RemembersReads,
    may_fail="ASYNC-03",
)  # fmt: skip
def WriteBackOfTheWholeColumn(put: MethodCall) -> KVBatchMeta:
    """Writes the caller's rows of a column, and the others as this client last read them.

    Rows of others that were cleared since come back.
    """
    receipt = put()
    if put.plane._owner or put.fields is None or list(map(str, put.fields.keys())) != ["y"]:
        return receipt
    others = {
        sample_id: row
        for (partition_id, sample_id), row in put.plane.seen.items()
        if partition_id == put.partition_id and sample_id not in put.sample_ids
    }
    if others:
        column = TensorDict({"y": stack_or_nest(list(others.values()))}, batch_size=[len(others)])
        put(sample_ids=list(others), fields=column, tags=None)
    return receipt


@ray_call_mutant(RayStoreClient.get_samples, "RANK-03", evidence="row 0 of 'x'", plane=KnowsOwnRows)
def OwnRoutesComeFirst(read: MethodCall) -> TensorDict:
    """Returns deep columns with the rows first that this process has put, so ranks differ."""
    batch: TensorDict = read()
    ids = list(read.sample_ids)
    order = sorted(range(len(ids)), key=lambda place: ids[place] not in read.plane.own)
    for name, leaf in list(batch.items()):
        if isinstance(leaf, Tensor) and is_jagged(leaf) and leaf.dim() == 4 and len(ids) > 2:
            batch.set(name, stack_or_nest([rows_of(leaf)[place] for place in order]))
    return batch


#: Rows that a rank may have claimed more than the one that is furthest behind.
LEAD = 3


class _CountsByRank(Controller):
    _claimed = State(dict[tuple[str, str], Counter[int]])  # by partition and task

    async def lead(self, partition_id: str, task: str, rank: int) -> int:
        claimed = self._claimed.get((partition_id, task), Counter())
        return claimed[rank] - min(claimed.values(), default=0)

    async def count(self, partition_id: str, task: str, rank: int, rows: int) -> None:
        self._claimed.setdefault((partition_id, task), Counter())[rank] += rows


class CountsByRank(ControllerClient):
    """A client without a defect whose plane counts what each rank has claimed."""

    controller_class = _CountsByRank


@ray_call_mutant(
    RayStoreClient.claim_meta, "CLAIM-04", evidence="rows of rank 0", plane=CountsByRank,
    may_fail="CLAIM-01 CLAIM-02 CLAIM-12 RANK-01",
)  # fmt: skip
def RankFarAheadIsHeldBack(claim: MethodCall) -> KVBatchMeta:
    """Returns nothing to a rank that has claimed three rows more than the one furthest behind."""
    ranked = claim.dp_rank is not None
    call, rank = claim.plane._connection.call, (claim.partition_id, claim.task_name, claim.dp_rank)
    names = claim.required_fields
    if ranked and claim.blocking is False and call("lead", *rank) >= LEAD:
        names = [*names, "held back"]
    meta: KVBatchMeta = claim(required_fields=names)
    if ranked and meta.sample_ids:
        call("count", *rank, meta.size)
    return meta

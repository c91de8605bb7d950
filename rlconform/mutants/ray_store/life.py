"""Attached clients that close incorrectly, stop the plane, ignore earlier puts or keep old rows."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any, ClassVar

import ray
from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.columns.selection import RowSelection
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.contract import KVBatchMeta, PlaneUnavailable, UnknownSample
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.ray_store.mutant import (
    ControllerClient,
    ray_call_mutant,
    ray_engine_mutant,
    ray_mutant,
)
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column, object_column, object_rows


@ray_call_mutant(RayStoreClient.close, "LIFE-02", evidence="PlaneUnavailable", may_fail="LIFE-06")
def AttachedSecondCloseEndsPlane(close: MethodCall) -> None:
    """Counts calls of close, not closed clients: a second close of one client stops the plane."""
    close()
    close.notes["calls"] = close.notes.get("calls", 0) + 1
    if close.notes["calls"] == 2 and not close.plane._owner:
        ray.kill(close.plane._connection._controller)


@ray_call_mutant(
    RayStoreClient.close, "LIFE-02", evidence="PlaneUnavailable", may_fail="LIFE-03 LIFE-06"
)
def AttachedCloseEndsPlane(close: MethodCall) -> None:
    """Stops the plane when any client closes, as if there were no other client."""
    close()
    if not close.plane._owner:
        close.plane._connection._stop()


@ray_call_mutant(RayStoreClient.close, "LIFE-03", evidence="of a client that was closed")
def AttachedCloseIgnored(close: MethodCall) -> None:
    """An attached client's close does nothing: only the owner's close works."""
    if close.plane._owner:
        close()


#: Tag with the time at which a row was put.
_PUT_AT = "put_at"


@ray_mutant("LIFE-06", evidence="rows claimable by a late client", may_fail="TAG-07 CLAIM-02")
class AttachedClaimIgnoresEarlierPuts(RayStoreClient):
    """Drops the rows of an attached client's claims that were put before the client attached."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._since = 0.0 if self._owner else time.time()

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if fields is not None and isinstance(sample_ids, list):
            rows = [{} for _ in sample_ids] if tags is None else tags
            tags = [{**row, _PUT_AT: time.time()} for row in rows]
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        put_at = [row.pop(_PUT_AT, self._since) for row in meta.tags or []]
        return meta.subset([n for n, at in enumerate(put_at) if at >= self._since])


@ray_call_mutant(RayStoreClient.claim_meta, "LIFE-07", evidence="PlaneUnavailable")
def AttachedClaimEmptyFieldsEndsPlane(claim: MethodCall) -> KVBatchMeta:
    """A claim without required fields, sent from an attached process, stops the controller."""
    if claim.required_fields == [] and not claim.plane._owner:
        claim.plane._connection._stop()
    return claim()


@ray_mutant("LIFE-06", evidence="never put")
class AttachedLoadsFirstPageOnly(RayStoreClient):
    """Loads only the first 1024 rows of each partition when it attaches.

    The process can read the other rows that were put before only once it has claimed them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        saved = [] if self._owner else self._engine.snapshot()
        self._missed = {(p.partition_id, row.sample_id) for p in saved for row in p.rows[1024:]}

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for sample_id in sample_ids:
            if (partition_id, sample_id) in self._missed:
                raise UnknownSample(f"sample {sample_id!r} was never put")
        return batch

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        self._missed -= {(meta.partition_id, sample_id) for sample_id in meta.sample_ids}
        return meta


#: Characters of an object that is stored outside of its row.
OUTSIDE = 1024


@ray_mutant("LIFE-02", evidence="row 0 of 'z' to be", may_fail="LIFE-06 PUT-13 PUT-21 PUT-27")
class JoinerTakesNumberOfLeaver(RayStoreClient):
    """Stores large objects by the client's number, which a client that joins later may get again.

    So the objects of a client that has closed are replaced by those of the one that joins next. The
    number is that of the clients attached at the time, and one more.
    """

    #: Partition of records of closed clients: which large objects each has put.
    _LEFT = "left_clients"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        saved = [] if self._owner else self._engine.snapshot()
        left = [row.tags["put"] for p in saved if p.partition_id == self._LEFT for row in p.rows]
        self._same_place: list[tuple[str, str, str]] = json.loads(left[-1]) if left else []
        self._put: list[tuple[str, str, str]] = []

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for name in receipt.fields or []:
            leaf = None if fields is None else fields.get(name)
            if not self._owner and is_object_column(leaf):
                values = object_rows(leaf, len(sample_ids))
                for sample_id, value in zip(sample_ids, values, strict=True):
                    if len(repr(value)) > OUTSIDE:
                        self._store((partition_id, sample_id, name), value)
        return receipt

    def _store(self, row: tuple[str, str, str], value: Any) -> None:
        """Note a large object; it replaces that of the closed client in the same place."""
        place = len(self._put)
        self._put.append(row)
        if place < len(self._same_place):
            partition_id, sample_id, name = self._same_place[place]
            try:
                super().get_samples([sample_id], partition_id, [name])
            except LookupError:  # it was cleared
                return
            old = TensorDict({name: object_column([value])}, batch_size=[1])
            super().put_samples([sample_id], partition_id, old)

    def close(self) -> None:
        if self._put:
            record = {"put": json.dumps(self._put)}
            self._put = []
            super().put_samples([f"client at {time.time()}"], self._LEFT, None, [record])
        super().close()


@ray_mutant(
    "LIFE-04", evidence="to attach with bootstrap=False", may_fail="LIFE-01 LIFE-06 CLAIM-16"
)
class AttachedPlaceLookedUpOnce(RayStoreClient):
    """Looks up once in each process where the plane is, so no later plane is found there.

    Clients that keep a connection or an address for the life of their process do so.
    """

    _place: ClassVar[str] = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        kind, place = type(self), self._connection._controller._actor_id.hex()
        if not self._owner and (kind._place or place) != place:
            super().close()
            raise PlaneUnavailable("the plane at the known place has ended")
        if not self._owner:
            kind._place = place


#: Blocks that this process has read, by the name of their plane and their number.
_READ: dict[tuple[str, int], ColumnBlock] = {}


class _ForgetsAtStart(ControllerClient):
    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        if bootstrap:
            _READ.clear()


@ray_engine_mutant("LIFE-04", evidence="row 0 of 'wide'", client=_ForgetsAtStart)
class BlocksKeptForNextPlane(RayStoreEngine):
    """Keeps the blocks that an attached process has read; a new plane begins with their numbers."""

    def _pick(self, locations: list[Any]) -> list[RowSelection] | None:
        selections, plane = super()._pick(locations), self._connection._name
        if selections is None:
            return None
        for n, (at, selection) in enumerate(zip(locations, selections, strict=True)):
            if at.reference is not None:
                read = {
                    name: replace(column, values=column.values.copy())
                    for name, column in selection.columns.items()
                }
                kept = _READ.setdefault((plane, at.block), read)
                selections[n] = replace(selection, columns=kept)
        return selections


class _KnowsOrder(Controller):
    _fields = State(dict[str, list[str]])

    async def note_fields(self, partition_id: str, fields: list[str]) -> None:
        self._fields.setdefault(partition_id, fields)

    async def fields_of(self, partition_id: str) -> list[str]:
        return self._fields.get(partition_id, [])


@ray_mutant("LIFE-04", evidence="of 'x'")
class FieldNumbersKeptForNextPlane(ControllerClient):
    """Keeps the numbers of a partition's fields in the process, also for a plane that starts anew.

    If that plane has the fields in another order, a process of the old one reads the wrong field.
    """

    controller_class = _KnowsOrder
    _numbers: ClassVar[dict[str, list[str]]] = {}

    def register_partition(self, partition_id: str, fields: list[str], *a: Any, **k: Any) -> None:
        super().register_partition(partition_id, fields, *a, **k)
        self._connection.call("note_fields", partition_id, list(fields))

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        now = self._connection.call("fields_of", partition_id)
        kept = self._numbers.setdefault(partition_id, now)
        others = {name: now[kept.index(name)] for name in select_fields if name in kept[: len(now)]}
        stored = [others.get(name, name) for name in select_fields]
        batch = super().get_samples(sample_ids, partition_id, stored)
        columns = dict(zip(select_fields, map(batch.get, stored), strict=True))
        return TensorDict(columns, batch_size=batch.batch_size)

"""What a process takes along when its client closes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.columns.selection import RowSelection
from rlconform.backends.ray_store.controller import Controller, Location
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.contract import DataPlaneError, KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_engine_mutant, ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags
from rlconform.wire import is_object_column, object_column, object_rows


class _KnowsBareRows(Controller):
    async def bare(self, partition_id: str, sample_ids: Ids) -> list[str]:
        """Return the rows that have no fields."""
        rows = rows_in(self._index, partition_id, sample_ids)
        return [row.sample_id for row in rows if not row.fields]


@ray_mutant("LIFE-02", evidence="announced", may_fail="LIFE-06 TAG-01 TAG-02")
class AnnouncedRowsLeaveWithTheirProcess(ControllerClient):
    """Drops the rows without fields of an attached client that has put no fields, as it closes."""

    controller_class = _KnowsBareRows
    _announced = State(dict[str, list[str]])  # by partition
    _produced = False

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        self._produced |= fields is not None
        self._announced.setdefault(partition_id, []).extend(sample_ids)
        return receipt

    def close(self) -> None:
        for partition_id, ids in () if self._owner or self._produced else self._announced.items():
            with suppress(DataPlaneError, LookupError):
                bare = self._connection.call("bare", partition_id, ids)
                self.clear_samples(bare, partition_id)
        self._announced.clear()
        super().close()


#: Characters of an object that stays in the process that put it.
LONG = 1 << 17


@ray_mutant("LIFE-02", evidence="row", may_fail="LIFE-06 PUT-21")
class LongObjectsLeaveWithTheirProcess(ControllerClient):
    """Loses the objects of 128 KiB or more that an attached client has put, as it closes."""

    _long = State(dict[tuple[str, str, str], None])  # partition, id and field

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for name, leaf in dict(fields.items() if isinstance(fields, TensorDict) else ()).items():
            values: list[Any] = []
            if is_object_column(leaf):
                values = object_rows(leaf, len(sample_ids))
            for sample_id, value in zip(sample_ids, values, strict=False):
                if len(repr(value)) >= LONG:
                    self._long[partition_id, sample_id, name] = None
        return receipt

    def close(self) -> None:
        for partition_id, sample_id, name in () if self._owner else self._long:
            with suppress(DataPlaneError, LookupError):
                self.get_samples([sample_id], partition_id, [name])  # it may have been cleared
                lost = TensorDict({name: object_column([None])}, [1])
                super().put_samples([sample_id], partition_id, lost)
        self._long.clear()
        super().close()


#: Columns that this process has mapped, by the name of the plane and the number of the block.
_MAPPED: dict[tuple[str, int], ColumnBlock] = {}


@ray_engine_mutant("LIFE-04", evidence="wide", may_fail="LIFE-06 GET-10 PUT-01")
class BlocksMappedByNumber(RayStoreEngine):
    """Keeps the columns that a process has mapped by a number, which a new plane gives again."""

    def _pick(self, locations: list[Location]) -> list[RowSelection] | None:
        if super()._pick(locations) is None:
            return None
        name = self._connection._name
        wanted = {at.block: at.reference for at in locations if at.reference is not None}
        mapped = self._connection.map(wanted) or {}
        blocks = {n: _MAPPED.setdefault((name, n), columns) for n, columns in mapped.items()}
        return [
            RowSelection(at.columns or blocks[at.block], at.names, at.indexes, at.positions)
            for at in locations
        ]

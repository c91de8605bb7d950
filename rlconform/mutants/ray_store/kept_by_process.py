"""What a process keeps of rows that it has read or written, and another process has changed."""

from __future__ import annotations

import pickle
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from typing import Any
from uuid import uuid4

import torch
from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, interplay_mutant, ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column, object_column, object_rows, rows_of, stack_or_nest


@ray_mutant("GET-10", evidence="row", may_fail="GET-11 PUT-05 PUT-13 R3-01")
class RowEndsKeptByTotal(RayStoreClient):
    """Keeps where the rows of a jagged column end, as long as it has as many values in all.

    Puts and clears of the same process drop what is kept.
    """

    _lengths = State(dict[tuple[str, tuple[str, ...], str], list[int]])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name in list(map(str, batch.keys())):
            leaf = batch.get(name)
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.jagged:
                rows = rows_of(leaf)
                lengths = [len(row) for row in rows]
                kept = self._lengths.setdefault((partition_id, tuple(sample_ids), name), lengths)
                if sum(kept) == sum(lengths) and kept != lengths:
                    batch.set(name, stack_or_nest(list(torch.split(torch.cat(list(rows)), kept))))
        return batch

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._lengths.clear()
        return super().put_samples(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._lengths.clear()
        super().clear_samples(*args, **kwargs)


@ray_mutant("GET-10", evidence="log", may_fail="GET-11 PUT-13 PUT-21 R3-01")
class ObjectsKeptByTheirEnds(RayStoreClient):
    """Returns an object that it read before for one as long that begins and ends alike.

    Puts and clears of the same process drop what is kept.
    """

    _objects = State(dict[tuple[str, str, str], tuple[bytes, Any]])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name in list(map(str, batch.keys())):
            if is_object_column(batch.get(name)):
                rows = object_rows(batch.get(name), len(sample_ids))
                keys = [(partition_id, sample_id, name) for sample_id in sample_ids]
                batch.set(name, object_column(list(map(self._kept, keys, rows))))
        return batch

    def _kept(self, key: tuple[str, str, str], row: Any) -> Any:
        fresh, ends = pickle.dumps(row), 64
        kept, known = self._objects.setdefault(key, (fresh, row))
        alike = len(kept) == len(fresh) and kept[:ends] == fresh[:ends]
        if not alike or kept[-ends:] != fresh[-ends:]:
            _, known = self._objects[key] = fresh, row
        return deepcopy(known)

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._objects.clear()
        return super().put_samples(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._objects.clear()
        super().clear_samples(*args, **kwargs)


@interplay_mutant("GET-10", evidence="row", may_fail="GET-11 PUT-13 PUT-23")
class ReceiptCarriesItsRows(RayStoreClient):
    """Sends the rows of a put along with its receipt, and reads them there.

    A process that has put these rows itself since reads what is stored.
    """

    _newest = State(dict[tuple[str, str], str])  # the process's last put of a row

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        if not isinstance(fields, TensorDict) or not receipt.sample_ids:
            return receipt
        put = uuid4().hex
        self._newest.update({(partition_id, i): put for i in receipt.sample_ids})
        return replace(receipt, extra_info={"receipt": (put, fields.clone())})

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        batch = super().get_data(meta, select_fields)  # refuses what must be refused
        put, rows = (meta.extra_info or {}).get("receipt", (None, None))
        own = {self._newest.get((meta.partition_id, i), put) for i in meta.sample_ids}
        names = list(map(str, batch.keys()))
        if own != {put} or rows is None or not set(names) <= set(rows.keys()):
            return batch
        return TensorDict({n: rows.get(n) for n in names}, batch.batch_size).clone()


class _NumbersTexts(Controller):
    _puts = State(Counter[str])  # of repeated texts, by partition, since its registration
    _number = State(dict[tuple[str, str, str], int])  # of the put, by partition, id and field

    async def register(self, partition_id: str, tasks: list[str], group_size: int) -> Any:
        if not self._index.sample_ids(partition_id):
            self._puts[partition_id] = 0
        return await super().register(partition_id, tasks, group_size)

    async def note(self, partition_id: str, ids: Ids, texts: Names, others: Names) -> None:
        self._puts[partition_id] += bool(texts)
        for name in (*texts, *others):
            for sample_id in ids:
                self._number.pop((partition_id, sample_id, name), None)
                if name in texts:
                    number = self._puts[partition_id]
                    self._number[partition_id, sample_id, name] = number

    async def numbers(self, partition_id: str, ids: Ids, name: str) -> list[int | None]:
        return [self._number.get((partition_id, i, name)) for i in ids]


@interplay_mutant("REG-03", evidence="row", may_fail="GET-10 PUT-13 CLEAR-04")
class TextsKeptByNumber(ControllerClient):
    """Keeps texts that repeat by the number of their put, which a new registration begins anew.

    Puts and registrations of the same process drop what is kept.
    """

    controller_class = _NumbersTexts

    _texts = State(dict[tuple[str, str, int, str], Any])

    def register_partition(self, *args: Any, **kwargs: Any) -> None:
        super().register_partition(*args, **kwargs)
        self._texts.clear()

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        self._texts.clear()
        if isinstance(fields, TensorDict) and receipt.sample_ids:
            objects = {
                name: list(object_rows(fields.get(name), len(receipt.sample_ids)))
                for name in receipt.fields or []
                if is_object_column(fields.get(name))
            }
            texts = [name for name, rows in objects.items() if _repeat(rows)]
            others = [name for name in objects if name not in texts]
            self._connection.call("note", partition_id, receipt.sample_ids, texts, others)
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name in list(map(str, batch.keys())):
            if not is_object_column(batch.get(name)) or not sample_ids:
                continue
            numbers = self._connection.call("numbers", partition_id, sample_ids, name)
            rows = list(object_rows(batch.get(name), len(sample_ids)))
            for at, number in enumerate(numbers):
                if number is not None:
                    key = partition_id, name, number, sample_ids[at]
                    rows[at] = self._texts.setdefault(key, rows[at])
            batch.set(name, object_column(rows))
        return batch


def _repeat(rows: list[Any]) -> bool:
    """Whether the rows are texts, some of them equal."""
    return all(isinstance(row, str) for row in rows) and len(set(rows)) < len(rows)


class _Tables(Controller):
    _rooms = State(dict[str, int])  # rows for which a partition's first table has room

    async def room(self, partition_id: str, rows: int) -> None:
        self._rooms[partition_id] = max(rows, 1)

    async def moves(self, partition_id: str) -> int:
        """Return how often the table was replaced by one of twice the size."""
        rows = len(self._index.sample_ids(partition_id))
        return max(0, (rows - 1) // self._rooms.get(partition_id, 1)).bit_length()


@ray_mutant("REG-07", evidence="row", may_fail="PUT-11 PUT-13 GET-10")
class GrownTableStillMapped(ControllerClient):
    """Overwrites rows in the table of its first put, though other processes' rows have moved it.

    A process that reads, claims, or puts new rows, looks for the newest table.
    """

    controller_class = _Tables

    _mapped = State(dict[str, int])  # the number of the table, by partition

    def register_partition(
        self, partition_id: str, fields: Any, num_samples: int, *args: Any, **kwargs: Any
    ) -> None:
        super().register_partition(partition_id, fields, num_samples, *args, **kwargs)
        self._connection.call("room", partition_id, num_samples)
        self._mapped.pop(partition_id, None)

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        mapped = self._mapped.get(partition_id)
        if isinstance(fields, TensorDict) and mapped is not None:
            moved = mapped < self._connection.call("moves", partition_id)
            if moved and set(sample_ids) <= set(self.list_sample_ids(partition_id)):
                unchanged: list[Tags] = [{} for _ in sample_ids]
                receipt = super().put_samples(sample_ids, partition_id, None, tags or unchanged)
                return replace(receipt, fields=list(map(str, fields.keys())))
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        if receipt.fields:
            self._mapped[partition_id] = self._connection.call("moves", partition_id)
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        self._mapped.pop(partition_id, None)
        return super().get_samples(sample_ids, partition_id, select_fields)

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._mapped.pop(partition_id, None)
        return super().claim_meta(partition_id, *args, **kwargs)


class _NamesKinds(Controller):
    async def kinds(self, partition_id: str) -> dict[str, str]:
        partition = self._index._partitions.get(partition_id)
        fields = {} if partition is None else partition._fields._fields
        return {name: field.kind for name, field in fields.items()}


@ray_mutant("PUT-23", evidence="row", may_fail="PUT-13")
class DtypeSentOnce(ControllerClient):
    """Names the dtype of a field in its first put only, until it puts the field in another one.

    Bytes that follow are taken for values of the field's dtype, if that has the same size.
    """

    controller_class = _NamesKinds

    _sent = State(dict[tuple[str, str], torch.dtype])

    def register_partition(self, *args: Any, **kwargs: Any) -> None:
        super().register_partition(*args, **kwargs)
        self._sent.clear()

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if not isinstance(fields, TensorDict) or not sample_ids:
            return super().put_samples(sample_ids, partition_id, fields, tags)
        kinds = self._connection.call("kinds", partition_id)
        columns = {name: fields.get(name) for name in map(str, fields.keys())}
        dense = {n: c for n, c in columns.items() if getattr(c, "layout", None) is torch.strided}
        for name, column in dense.items():
            stored = getattr(torch, kinds.get(name, ""), column.dtype)
            sent = self._sent.get((partition_id, name)) == column.dtype
            if sent and stored.itemsize == column.dtype.itemsize and torch.bool != stored:
                columns[name] = column.contiguous().view(stored)
        taken = TensorDict(columns, fields.batch_size)
        receipt = super().put_samples(sample_ids, partition_id, taken, tags)
        self._sent.update({(partition_id, n): column.dtype for n, column in dense.items()})
        return receipt

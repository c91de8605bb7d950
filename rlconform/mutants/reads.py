"""Reads that give other rows, fields or bytes than those asked for, or none where an error is due."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, UnknownField, UnknownSample
from rlconform.mutants import IMPATIENT, broken
from rlconform.mutants.values import mapped

breaks = partial(broken, RIGHT, timeouts=IMPATIENT)


@breaks("GET-01", says="row:")
class PutByPut(MemoryClient):
    """A read gives the rows of each put together, in the order of the puts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._puts: dict[tuple[str, str], int] = {}

    def put_samples(self, sample_ids: list[str], partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Put, and note which put brought a row first."""
        receipt = super().put_samples(sample_ids, partition_id, *args, **kwargs)
        number = len(self._puts)
        for sample_id in sample_ids:
            self._puts.setdefault((partition_id, sample_id), number)
        return receipt

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read put by put."""
        ids = sorted(sample_ids, key=lambda i: self._puts.get((partition_id, i), 0))
        return super().get_samples(ids, partition_id, select_fields)


@breaks("GET-01", says="row:")
class SortsLongReads(MemoryClient):
    """A read of many rows goes through the store once, in the order of their ids."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read in order of the ids, from a hundred of them on."""
        ids = sorted(sample_ids) if len(sample_ids) > 100 else sample_ids
        return super().get_samples(ids, partition_id, select_fields)


@breaks("GET-02", says="4 rows of 'x'")
class ReadsEachIdOnce(MemoryClient):
    """A read looks its ids up as a set: one that is named again has no second row."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read each id where it is named first."""
        return super().get_samples(list(dict.fromkeys(sample_ids)), partition_id, select_fields)


@breaks("GET-02", says="row 2 of 'x'")
class FillsOneBufferForEachId(MemoryClient):
    """A read fills one place for each id: the others of an id that repeats stay as they were."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read, and leave zeros where an id came before."""
        again = [n for n, i in enumerate(sample_ids) if i in sample_ids[:n]]
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if not again:
            return batch
        return mapped(batch, lambda leaf: leaf.index_fill(0, torch.tensor(again), 0))


@breaks("GET-03", says="fields of the result ['x', 'z']")
class ReadsARangeOfFields(MemoryClient):
    """A read of several fields brings all from the first to the last of them (NR-25)."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the fields, and any between them that the rows have."""
        between = [f for f in "xyz" if select_fields and min(select_fields) < f < max(select_fields)]
        try:
            names = [*select_fields, *between]
            return super().get_samples(sample_ids, partition_id, names)
        except UnknownField:
            return super().get_samples(sample_ids, partition_id, select_fields)


@breaks("GET-04", "GET-06", says="expected an id that was never put to be rejected")
class DropsUnknownIds(MemoryClient):
    """A read leaves out ids that it doesn't know, and the rows behind shift (NR-01)."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the rows that are there."""
        return super().get_samples(
            known_of(self, sample_ids, partition_id, select_fields), partition_id, select_fields
        )


def known_of(client: MemoryClient, ids: list[str], partition_id: str, names: list[str]) -> list[str]:
    """Those of the ids that can be read."""
    known = []
    for sample_id in ids:
        try:
            MemoryClient.get_samples(client, [sample_id], partition_id, names)
        except UnknownSample:
            continue
        known.append(sample_id)
    return known


@breaks("GET-04", says="one unknown id among 48 known ones")
class DropsUnknownIdsOfLongReads(MemoryClient):
    """A read of more rows than fit one request drops what a later request misses (MC-13)."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read sixteen rows as they are, and of the others those that are there."""
        first, later = sample_ids[:16], sample_ids[16:]
        later = known_of(self, later, partition_id, select_fields)
        return super().get_samples([*first, *later], partition_id, select_fields)


@breaks("GET-04", says="an id that was never put")
class GivesTheNeighbour(MemoryClient):
    """A read finds rows by bisection and doesn't look whether it found the row itself."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the last known row before an id that isn't known."""
        known = known_of(self, sample_ids, partition_id, select_fields)
        found = [max([k for k in known if k <= i], default=i) for i in sample_ids]
        if known and len(known) + 1 == len(found) and sample_ids[0] in known:
            sample_ids = found
        return super().get_samples(sample_ids, partition_id, select_fields)


@breaks("GET-05", says="a field not produced for every id")
class SkipsUnknownFields(MemoryClient):
    """A read leaves out a field that no row of the partition has (NR-02)."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the fields that there are."""
        try:
            return super().get_samples(sample_ids, partition_id, select_fields)
        except UnknownField:
            rest = [name for name in select_fields if name in ("x", "y", "z")]
            if not rest or len(rest) == len(select_fields):
                raise
            return super().get_samples(sample_ids, partition_id, rest)


@breaks("GET-05", says="a field not produced for every id")
class ReadsRowsThatHaveTheField(MemoryClient):
    """A read of a field that some rows have gives those rows alone (NR-02)."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the rows that have the fields, if any do."""
        having = []
        for sample_id in sample_ids:
            try:
                super().get_samples([sample_id], partition_id, select_fields)
            except UnknownField:
                continue
            having.append(sample_id)
        return super().get_samples(having or sample_ids, partition_id, select_fields)


@breaks("GET-06", says="the meta of rows cleared since")
class MetasOutliveTheirRows(MemoryClient):
    """get_data keeps what it read by meta and finds it there after the rows were cleared."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._claimed: dict[tuple[str, ...], TensorDict] = {}

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim, and fetch at once what will be asked for."""
        meta = super().claim_meta(*args, **kwargs)
        if meta.sample_ids:
            fetched = super().get_data(meta)
            self._claimed[meta.partition_id, *meta.sample_ids] = fetched
        return meta

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read, or give what was fetched if the rows are gone."""
        try:
            return super().get_data(meta, select_fields)
        except UnknownSample:
            fetched = self._claimed.get((meta.partition_id, *meta.sample_ids))
            if fetched is None:
                raise
            return fetched.clone()


@breaks("GET-07", says="expected batch size (0,)")
class NoIdsMeanAll(MemoryClient):
    """A read of no ids gives every row of the partition, as ``ids or all_ids`` does."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the rows named, or all."""
        rows = [] if sample_ids else self._engine._plane.index.partition(partition_id).rows_of("")
        return super().get_samples(sample_ids or rows, partition_id, select_fields)


@breaks("GET-07", says="a shard without rows")
class RefusesEmptyMetas(MemoryClient):
    """get_data of an empty shard asks for its longest row, and there is none."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read the rows of a shard that has some."""
        if not getattr(meta, "sample_ids", True):
            raise ValueError("a shard without rows has no longest one")
        return super().get_data(meta, select_fields)


@breaks("GET-08", says="unconsumed")
class ReadsCountAsClaims(MemoryClient):
    """A row that was read counts as consumed by every task; claims hand it out all the same."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read: set[tuple[str, str]] = set()

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read, and note what was read."""
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        self._read.update((partition_id, sample_id) for sample_id in sample_ids)
        return batch

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """Whether all was claimed, or read."""
        if super().check_consumption_status(partition_id, task_names):
            return True
        rows = self._engine._plane.index.partition(partition_id).rows_of("")
        return bool(rows) and all((partition_id, i) in self._read for i in rows)


@breaks("GET-09", says="expected batch size (1,)")
class SqueezesOneRow(MemoryClient):
    """A read of one row has no batch size left, after a squeeze too many."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read, the batch size of one row forgotten."""
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if len(sample_ids) == 1:
            batch.batch_size = torch.Size([])
        return batch


@breaks("GET-09", says="batch size")
class GuessesTheBatchSize(MemoryClient):
    """Lets the batch find out its size from its columns: as many dimensions as they share."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read, the batch size guessed."""
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        batch.auto_batch_size_()
        return batch


@breaks("GET-11", says="select_fields=['y']")
class PrefersTheMetasFields(MemoryClient):
    """get_data reads the meta's fields where it names some, whatever else is selected."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read the meta's fields, else those selected."""
        return super().get_data(meta, getattr(meta, "fields", None) or select_fields)


@breaks("GET-11", says="a meta that names no fields")
class ReadsAllWithoutFields(MemoryClient):
    """get_data reads every field where neither the meta nor the caller names one."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read what is named, else all that there is."""
        try:
            return super().get_data(meta, select_fields)
        except ValueError:
            if select_fields is not None or not meta.sample_ids:
                raise
            row = self._engine._plane.index.partition(meta.partition_id)._rows[meta.sample_ids[0]]
            return super().get_data(meta, sorted(row.fields))


@breaks("GET-12", says="a read of no fields")
class NoFieldsNoColumns(MemoryClient):
    """A read of no fields gives a batch of no columns."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read the fields named, if any."""
        if select_fields == []:
            return TensorDict({}, batch_size=[len(sample_ids)])
        return super().get_samples(sample_ids, partition_id, select_fields)

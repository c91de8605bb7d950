"""Tags that are stored as the place of their value in a registered list of values."""

from __future__ import annotations

from typing import Any

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import memory_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags

#: The values of each tag.
Enums = dict[str, list[str]]


class KnowsEnums(MemoryClient):
    """A client without a defect that records the enums of each partition."""

    enums = State(dict[str, Enums])

    def register_partition(
        self,
        partition_id: str,
        fields: Any,
        num_samples: int,
        consumer_tasks: Any,
        grpo_group_size: int | None = None,
        enums: Enums | None = None,
    ) -> None:
        super().register_partition(
            partition_id, fields, num_samples, consumer_tasks, grpo_group_size, enums
        )
        self.enums[partition_id] = {name: list(values) for name, values in (enums or {}).items()}


@memory_mutant("TAG-01", evidence="tags whose values are those of two enums")
class TagEnumsShareCodes(KnowsEnums):
    """Encodes the values of all enums by one table, and decodes each by its own list.

    A value of two enums, at different places of them, comes back as another value of the first.
    """

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        enums = self.enums.get(partition_id, {}) if isinstance(tags, list) else {}
        codes = {value: n for values in enums.values() for n, value in enumerate(values)}
        for name, values in enums.items():
            decoded = {value: (values[codes[value] :] or [value])[0] for value in values}
            tags = [
                {**row, name: decoded[row[name]]} if row.get(name) in decoded else row
                for row in tags or []
            ]
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("TAG-01", evidence="tags after the enum was registered in another order")
class TagEnumCodesOutliveTheirList(KnowsEnums):
    """Decodes the values of an enum by the list of the last registration, also of older rows."""

    _codes = State(dict[tuple[str, str, str], int])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for sample_id, row in zip(sample_ids, tags or [], strict=True):
            for name, values in self.enums.get(partition_id, {}).items():
                if row.get(name) in values:
                    self._codes[partition_id, sample_id, name] = values.index(row[name])
        return receipt

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        for sample_id, row in zip(meta.sample_ids, meta.tags or [], strict=True):
            for name, values in self.enums.get(meta.partition_id, {}).items():
                code = self._codes.get((meta.partition_id, sample_id, name))
                if name in row and code is not None:
                    row[name] = values[code]
        return meta

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        for key in list(self._codes):
            if key[0] == partition_id and (sample_ids is None or key[1] in sample_ids):
                del self._codes[key]


@memory_mutant("TAG-01", evidence="a value that the enum lacks")
class TagEnumsEndInOthers(KnowsEnums):
    """Encodes a text that an enum lacks as -1, which is the place of its last value."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        enums = self.enums.get(partition_id, {}) if isinstance(tags, list) else {}
        for name, values in enums.items():
            tags = [
                {**row, name: values[-1]}
                if isinstance(row.get(name), str) and row[name] not in values
                else row
                for row in tags or []
            ]
        return super().put_samples(sample_ids, partition_id, fields, tags)

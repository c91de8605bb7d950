"""Texts of object columns that are stored as their place in a registered list of values."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDict

from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import memory_mutant
from rlconform.mutants.memory.tag_enums import KnowsEnums
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column, object_column, object_rows


class StoresTexts(KnowsEnums):
    """A client without a defect that stores each text of a column with an enum by ``stored``."""

    def stored(self, value: str, values: list[str], _enums: dict[str, list[str]]) -> str:
        """Return what is stored for a text of a column whose enum is ``values``."""
        return value

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        enums = self.enums.get(partition_id, {}) if isinstance(fields, TensorDict) else {}
        if isinstance(fields, TensorDict) and enums:
            fields = fields.copy()
            for name, values in enums.items():
                column = fields.get(name, None)
                if is_object_column(column):
                    rows = object_rows(column, len(sample_ids))
                    texts = [
                        self.stored(row, values, enums) if isinstance(row, str) else row
                        for row in rows
                    ]
                    fields.set(name, object_column(texts))
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-21", evidence="source")
class ObjectEnumsShareCodes(StoresTexts):
    """Encodes the texts of all enums by one table, and decodes each by its own list."""

    def stored(self, value: str, values: list[str], enums: dict[str, list[str]]) -> str:
        codes = {each: n for listed in enums.values() for n, each in enumerate(listed)}
        return (values[codes[value] :] or [value])[0] if value in values else value


@memory_mutant("PUT-21", evidence="source")
class ObjectEnumsEndInOthers(StoresTexts):
    """Encodes a text that an enum lacks as -1, which is the place of its last value."""

    def stored(self, value: str, values: list[str], _enums: dict[str, list[str]]) -> str:
        return value if value in values else values[-1]


@memory_mutant("PUT-21", evidence="source")
class ObjectEnumCodesOutliveTheirList(KnowsEnums):
    """Decodes the texts of a column by the list of the last registration, also of older rows."""

    _lists = State(dict[tuple[str, str, str], list[str]])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for name, values in self.enums.get(partition_id, {}).items():
            for sample_id in sample_ids if name in (receipt.fields or ()) else ():
                self._lists[partition_id, sample_id, name] = values
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, values in self.enums.get(partition_id, {}).items():
            column = batch.get(name, None)
            if is_object_column(column):
                rows = object_rows(column, len(sample_ids))
                lists = [self._lists.get((partition_id, each, name), []) for each in sample_ids]
                texts = [_again(*each, values) for each in zip(rows, lists, strict=True)]
                batch.set(name, object_column(texts))
        return batch


def _again(value: Any, old: list[str], new: list[str]) -> Any:
    """Return the value of ``new`` at the place that a text has in ``old``."""
    known = isinstance(value, str) and value in old
    return (new[old.index(value) :] or [value])[0] if known else value

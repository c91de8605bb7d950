"""Places in a registered list that a process remembers after another has registered a new list."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags
from rlconform.wire import is_object_column, object_column, object_rows


class PublishesLists(RayStoreClient):
    """A client without a defect that stores lists of a registration in a partition of its own."""

    def publish(self, partition_id: str, lists: dict[str, list[str]]) -> None:
        """Store lists that the partition's clients in all processes can read."""
        text = torch.tensor(list(json.dumps(lists).encode()), dtype=torch.uint8)
        row = TensorDict({"lists": text[None]}, batch_size=[1])
        super().put_samples(["lists"], f"{partition_id} lists", row)

    def published(self, partition_id: str) -> dict[str, list[str]]:
        """Return the lists that were published last; none if none ever were."""
        try:
            row = super().get_samples(["lists"], f"{partition_id} lists", ["lists"])
        except LookupError:
            return {}
        lists: dict[str, list[str]] = json.loads(bytes(row["lists"][0].tolist()))
        return lists


class RemembersLists(PublishesLists):
    """A client without a defect that keeps the lists of a registration that its process saw."""

    _lists = State(dict[str, dict[str, list[str]]])

    def register_partition(
        self,
        partition_id: str,
        fields: Any,
        num_samples: int,
        consumer_tasks: Any,
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> None:
        how = (num_samples, consumer_tasks, grpo_group_size, enums)
        super().register_partition(partition_id, fields, *how)
        if enums:
            self.publish(partition_id, enums)
            self._lists[partition_id] = enums

    def recoded(self, partition_id: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return rows of names and values, encoded by the lists kept, decoded by the newest."""
        lists = self.published(partition_id)
        known = self._lists.setdefault(partition_id, lists) if lists else {}
        return [_decoded(row, known, lists) for row in rows]


@ray_mutant("TAG-01", evidence="tags")
class TagEnumListsKeptByProcess(RemembersLists):
    """Encodes a tag as the place of its value in the list that the process saw first.

    Once another process has registered another list, everybody else decodes another value.
    """

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(tags, list) and all(isinstance(row, dict) for row in tags):
            tags = self.recoded(partition_id, tags)
        return super().put_samples(sample_ids, partition_id, fields, tags)


@ray_mutant("TAG-01", evidence="tags with the enum")
class TagEnumListsKeptByReader(RemembersLists):
    """Decodes the tags of a claim by the list that the process has read; its puts read it anew."""

    def put_samples(self, sample_ids: Ids, partition_id: str, *rest: Any, **more: Any) -> Any:
        receipt = super().put_samples(sample_ids, partition_id, *rest, **more)
        self._lists.pop(partition_id, None)
        return receipt

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if lists := self.published(meta.partition_id):
            known = self._lists.setdefault(meta.partition_id, lists)
            for row in meta.tags or []:
                row.update(_decoded(row, lists, known))
        return meta


@ray_mutant("PUT-21", evidence="log")
class ObjectEnumListsKeptByProcess(RemembersLists):
    """Encodes a text of an object column as its place in the list that the process saw first."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict) and isinstance(partition_id, str):
            fields = fields.copy()
            names = list(map(str, fields.keys()))
            for name in [name for name in names if is_object_column(fields.get(name))]:
                values = object_rows(fields.get(name), len(sample_ids))
                if all(isinstance(value, str) for value in values):
                    rows = self.recoded(partition_id, [{name: value} for value in values])
                    fields.set(name, object_column([row[name] for row in rows]))
        return super().put_samples(sample_ids, partition_id, fields, tags)


def _decoded(
    row: dict[str, Any], known: dict[str, list[str]], lists: dict[str, list[str]]
) -> dict[str, Any]:
    """Return the tags encoded by the ``known`` lists and decoded by ``lists``."""
    codes = {name: known[name].index(row[name]) for name in row if row[name] in known.get(name, ())}
    return row | {name: (lists[name][code:] or [row[name]])[0] for name, code in codes.items()}


@ray_mutant(
    "REG-03",
    evidence="is not produced",
    may_fail="PUT-11 PUT-13 GET-05 GET-10 CLAIM-01 CLAIM-05",
)
class FieldNumbersKeptByProcess(PublishesLists):
    """Writes a field under its number in the list of fields that the process saw first.

    Once another process has registered the fields in another order, it writes over another field.
    """

    _numbers = State(dict[tuple[str, str], int])

    def register_partition(self, partition_id: str, fields: Any, *args: Any, **kwargs: Any) -> None:
        super().register_partition(partition_id, fields, *args, **kwargs)
        if not self.list_sample_ids(partition_id):
            self.publish(partition_id, {"fields": fields})
        for key in [key for key in self._numbers if key[0] == partition_id]:
            del self._numbers[key]

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if not isinstance(fields, TensorDict):
            return super().put_samples(sample_ids, partition_id, fields, tags)
        order = self.published(partition_id).get("fields", []) if sample_ids else []
        columns: dict[str, Any] = {}
        for name in map(str, fields.keys()):
            place = order.index(name) if name in order else -1
            number = self._numbers.setdefault((partition_id, name), place)
            columns[order[number] if 0 <= number < len(order) else name] = fields.get(name)
        written = TensorDict(columns, batch_size=fields.batch_size)
        receipt = super().put_samples(sample_ids, partition_id, written, tags)
        return replace(receipt, fields=list(map(str, fields.keys())))

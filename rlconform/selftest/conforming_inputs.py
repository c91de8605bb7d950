"""A correct plane that accepts inputs which the built-in planes refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict, is_tensor_collection

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, Tags
from rlconform.wire import is_object_column


class TakesOddities(MemoryClient):
    """Accepts leaves that are not columns, and treats None as no fields.

    A read of the same rows in the same order as in the put returns such a leaf unchanged. A clear
    of any of its rows removes it.
    """

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool) -> None:
        super().__init__(cfg, bootstrap)
        self._odd: dict[tuple[str, str], tuple[list[str], Any]] = {}  # by partition and field

    def register_partition(
        self, partition_id: str, fields: list[str] | None, *args: Any, **kwargs: Any
    ) -> None:
        super().register_partition(partition_id, fields or [], *args, **kwargs)

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        odd = odd_leaves(fields)
        if isinstance(fields, TensorDict) and odd:
            fields = fields.exclude(*odd)
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for name in receipt.fields or ():
            self._odd.pop((partition_id, name), None)
        for name, leaf in odd.items():
            self._odd[partition_id, name] = list(sample_ids), leaf.clone()
        return replace(receipt, fields=[*(receipt.fields or ()), *odd])

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        for (partition, name), (ids, _) in list(self._odd.items()):
            if partition == partition_id and (sample_ids is None or {*ids} & {*sample_ids}):
                self._odd.pop((partition, name))

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str] | None
    ) -> TensorDict:
        if select_fields is None:
            return TensorDict({}, batch_size=[len(sample_ids)])
        kept = {name: self._odd.get((partition_id, name), ([], None)) for name in select_fields}
        odd = {name: leaf for name, (ids, leaf) in kept.items() if ids and ids == sample_ids}
        columns = [name for name in select_fields if name not in odd]
        batch = super().get_samples(sample_ids, partition_id, columns)
        return batch.update({name: leaf.clone() for name, leaf in odd.items()})


def odd_leaves(fields: object) -> dict[str, Any]:
    """Return the leaves of a batch that are not columns: nested batches and sparse tensors."""
    leaves = fields.items() if isinstance(fields, TensorDict) else ()
    return {name: leaf for name, leaf in leaves if _is_odd(leaf)}


def _is_odd(leaf: object) -> bool:
    if isinstance(leaf, torch.Tensor):
        return leaf.layout not in (torch.strided, torch.jagged) and not leaf.is_nested
    return is_tensor_collection(leaf) and not is_object_column(leaf)

"""Receipts that name other ids or fields than a put has written."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants import IMPATIENT, broken
from rlconform.mutants.values import held

breaks = partial(broken, RIGHT, timeouts=IMPATIENT)


@breaks("PUT-14", says="sample_ids on the receipt")
class SortsTheReceipt(MemoryClient):
    """Names the ids on the receipt in the order of its own table."""

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Put, with a sorted receipt."""
        receipt = super().put_samples(*args, **kwargs)
        return replace(receipt, sample_ids=sorted(receipt.sample_ids))


@breaks("PUT-14", says="fields written by this put")
class ReceiptOfAllFields(MemoryClient):
    """Names on the receipt every field that the rows have by now."""

    def put_samples(
        self, sample_ids: list[str], partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        """Put, with the fields of the first row."""
        receipt = super().put_samples(sample_ids, partition_id, *args, **kwargs)
        row = held(self, partition_id)._rows.get(sample_ids[0]) if sample_ids else None
        return replace(receipt, fields=sorted(row.fields)) if row and receipt.fields else receipt


@breaks("PUT-14", says="fields written by this put")
class ReceiptOfTensors(MemoryClient):
    """Names on the receipt the fields that are tensors: who fetches by it misses the objects."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, with a receipt of tensors."""
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        named = receipt.fields or []
        tensors = [n for n in named if fields is not None and torch.is_tensor(fields.get(n))]
        return replace(receipt, fields=tensors)


@breaks("PUT-15", says="a put whose parts differ in length")
class EmptyTagListIsNone(MemoryClient):
    """Tests ``if tags:``, so that an empty list beside rows counts as a put without tags."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put; beside fields an empty list is none."""
        if fields is not None and not tags:
            tags = None
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-18", says="partition_id of an empty put")
class EmptyReceiptOfNowhere(MemoryClient):
    """Answers a put of no rows with a meta that names no partition."""

    def put_samples(self, sample_ids: list[str], *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Put, with a receipt."""
        receipt = super().put_samples(sample_ids, *args, **kwargs)
        return receipt if sample_ids else replace(receipt, partition_id="")

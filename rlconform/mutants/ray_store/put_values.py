"""Clients that return wrong dtypes or receipts in other processes than the writer or owner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.ray_store.race_helpers import AlteredForeignRows
from rlconform.mutants.types import Ids, Names


@ray_mutant("PUT-01", evidence="of torch.float64")
class AttachedGetDoublesNarrowed(AlteredForeignRows):
    """Narrows float64 columns of other processes to float32; a process's own rows stay float64."""

    def arrived(self, leaf: Tensor) -> Tensor:
        return leaf.float() if leaf.dtype is torch.float64 else leaf


@ray_mutant("PUT-02", evidence="uint8")
class AttachedGetFp8AsBytes(AlteredForeignRows):
    """Sends columns between processes as numpy arrays, so that fp8 columns arrive as uint8."""

    def arrived(self, leaf: Tensor) -> Tensor:
        fp8 = leaf.dtype in {torch.float8_e4m3fn, torch.float8_e5m2}
        return leaf.view(torch.uint8) if fp8 and not leaf.is_nested else leaf


@ray_mutant("PUT-13", evidence="of torch")
class AttachedGetFirstDtypeKept(RayStoreClient):
    """An attached client casts a field to the dtype that the field had when first read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._learned: dict[tuple[str, str], torch.dtype] = {}

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()):
            if isinstance(leaf, Tensor) and not self._owner:
                dtype = self._learned.setdefault((partition_id, name), leaf.dtype)
                batch.set(name, leaf if leaf.dtype is dtype else leaf.to(dtype))
        return batch


@ray_mutant("PUT-14", evidence="fields written by this put")
class AttachedReceiptWithoutFields(RayStoreClient):
    """The receipt of an attached client's put lists the ids, but no fields."""

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        receipt = super().put_samples(*args, **kwargs)
        return receipt if self._owner else replace(receipt, fields=[])


@ray_mutant("PUT-24", evidence="int32")
class AttachedGetUint32AsSigned(AlteredForeignRows):
    """Sends uint32 columns between processes as int32, the only 32-bit integer of the message."""

    def arrived(self, leaf: Tensor) -> Tensor:
        return leaf.view(torch.int32) if leaf.dtype is torch.uint32 else leaf

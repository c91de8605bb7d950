"""Clients that return wrong dtypes or receipts in other processes than the writer or owner."""

from __future__ import annotations

from dataclasses import replace

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.ray_store.mutant import ray_call_mutant
from rlconform.mutants.ray_store.race_helpers import foreign_column_mutant


@foreign_column_mutant("PUT-01", evidence="of torch.float64")
def AttachedGetDoublesNarrowed(leaf: Tensor) -> Tensor:
    """Narrows float64 columns of other processes to float32; a process's own rows stay float64."""
    return leaf.float() if leaf.dtype is torch.float64 else leaf


@foreign_column_mutant("PUT-02", evidence="uint8")
def AttachedGetFp8AsBytes(leaf: Tensor) -> Tensor:
    """Sends columns between processes as numpy arrays, so that fp8 columns arrive as uint8."""
    fp8 = leaf.dtype in {torch.float8_e4m3fn, torch.float8_e5m2}
    return leaf.view(torch.uint8) if fp8 and not leaf.is_nested else leaf


@ray_call_mutant(RayStoreClient.get_samples, "PUT-13", evidence="of torch")
def AttachedGetFirstDtypeKept(read: MethodCall) -> TensorDict:
    """An attached client casts a field to the dtype that the field had when first read."""
    batch: TensorDict = read()
    for name, leaf in list(batch.items()):
        if isinstance(leaf, Tensor) and not read.plane._owner:
            dtype = read.notes.setdefault((read.partition_id, name), leaf.dtype)
            batch.set(name, leaf if leaf.dtype is dtype else leaf.to(dtype))
    return batch


@ray_call_mutant(RayStoreClient.put_samples, "PUT-14", evidence="fields written by this put")
def AttachedReceiptWithoutFields(put: MethodCall) -> KVBatchMeta:
    """The receipt of an attached client's put lists the ids, but no fields."""
    receipt = put()
    return receipt if put.plane._owner else replace(receipt, fields=[])


@foreign_column_mutant("PUT-24", evidence="int32")
def AttachedGetUint32AsSigned(leaf: Tensor) -> Tensor:
    """Sends uint32 columns between processes as int32, the only 32-bit type of its messages."""
    return leaf.view(torch.int32) if leaf.dtype is torch.uint32 else leaf

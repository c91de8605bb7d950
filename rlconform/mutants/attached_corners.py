"""Clients of ``ray_store`` that attach, and are wrong where an earlier call or another has been."""

from __future__ import annotations

import time
import zlib
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.ray_store import TARGET as RIGHT
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants import broken
from rlconform.mutants.attached import _CarriesOthersRows

breaks = partial(broken, RIGHT)


def _only(meta: KVBatchMeta, places: list[int]) -> KVBatchMeta:
    """The meta of some of its rows."""

    def at(column: list[Any] | None) -> list[Any] | None:
        return None if column is None else [column[place] for place in places]

    return replace(
        meta,
        sample_ids=[meta.sample_ids[place] for place in places],
        tags=at(meta.tags),
        sequence_lengths=at(meta.sequence_lengths),
    )


@breaks("CLAIM-12", says="no row lost")
class LeavesOtherRanksTheirRows(RayStoreClient):
    """An attached rank drops claimed rows that fall to others, who can't claim them any more."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim, and of what came keep this rank's."""
        meta = super().claim_meta(*args, **kwargs)
        rank = kwargs.get("dp_rank")
        if rank is None or self._owner:
            return meta
        mine = [n for n, i in enumerate(meta.sample_ids) if zlib.crc32(i.encode()) % 4 == rank]
        return _only(meta, mine)


@breaks("CLAIM-06", says="no row lost")
class KeepsWhatItGathered(RayStoreClient):
    """A claim that waits takes rows as they come, and at its timeout keeps them for its next claim.

    By itself a process gets all its rows. Those that its last claim gathered, nobody gets.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gathered: dict[tuple[str, str], list[KVBatchMeta]] = {}

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: list[str],
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> KVBatchMeta:
        """Claim; what waits claims row by row."""
        asked = (partition_id, task_name, required_fields)
        held = self._gathered.setdefault((partition_id, task_name), [])
        if self._owner or not (blocking or held) or not isinstance(batch_size, int):
            return super().claim_meta(*asked, batch_size, dp_rank, blocking, timeout_s)
        deadline = time.monotonic() + timeout_s
        while len(held) < batch_size:
            one = super().claim_meta(*asked, 1, dp_rank, False)
            if one.sample_ids:
                held.append(one)
            elif not blocking:
                break
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{len(held)} rows in {timeout_s} s")
            else:
                time.sleep(0.002)  # a poll without a pause would keep the puts out
        given = [held.pop(0) for _ in range(min(batch_size, len(held)))]
        return replace(
            given[0],
            sample_ids=[i for one in given for i in one.sample_ids],
            tags=[row for one in given for row in one.tags or [{}]],
        )


@breaks("LIFE-03", says="of a client that was closed")
class StaysOpenFromAfar(RayStoreClient):
    """An attached client's close leaves it as it is: only the owner has something to close."""

    def close(self) -> None:
        """Close, if this is the owner."""
        if self._owner:
            super().close()


@breaks("LIFE-07", says="PlaneUnavailable")
class DiesOfAnEmptyRequest(RayStoreClient):
    """A claim that requires nothing, sent from another process, ends the controller."""

    def claim_meta(
        self, partition_id: str, task_name: str, required_fields: list[str], *args: Any, **kw: Any
    ) -> KVBatchMeta:
        """Claim."""
        if required_fields == [] and not self._owner:
            self._connection._stop()
        return super().claim_meta(partition_id, task_name, required_fields, *args, **kw)


@breaks("PUT-02", says="uint8")
class CarriesEightBitsAsBytes(_CarriesOthersRows):
    """Others' columns come through numpy, which has no fp8: they arrive as bytes."""

    def arrived(self, leaf: Tensor) -> Tensor:
        """Columns of fp8 as bytes."""
        fp8 = leaf.dtype in {torch.float8_e4m3fn, torch.float8_e5m2}
        return leaf.view(torch.uint8) if fp8 and not leaf.is_nested else leaf


@breaks("PUT-24", says="int32")
class CarriesWordsAsSigned(_CarriesOthersRows):
    """Others' 32-bit words arrive signed: the message has no other."""

    def arrived(self, leaf: Tensor) -> Tensor:
        """Unsigned words as signed ones."""
        return leaf.view(torch.int32) if leaf.dtype is torch.uint32 else leaf


@breaks("PUT-13", says="of torch")
class LearnsADtypeOnce(RayStoreClient):
    """An attached client takes a field to have the dtype that it had when first read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._learned: dict[tuple[str, str], torch.dtype] = {}

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read, in the dtypes that were learned."""
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()):
            if isinstance(leaf, Tensor) and not self._owner:
                dtype = self._learned.setdefault((partition_id, name), leaf.dtype)
                batch.set(name, leaf if leaf.dtype is dtype else leaf.to(dtype))
        return batch


@breaks("PUT-14", says="fields written by this put")
class SignsForNoFields(RayStoreClient):
    """The receipt of an attached client names the rows alone."""

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Put."""
        receipt = super().put_samples(*args, **kwargs)
        return receipt if self._owner else replace(receipt, fields=[])


@breaks("REG-03", says="tags of step 1")
class TakesARowForOneItKnows(RayStoreClient):
    """An attached client sends a row's tags once: of an id that it put before, they are there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._known: set[tuple[str, str]] = set()

    def put_samples(
        self, sample_ids: list[str], partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        """Put; rows that this process put before without their tags."""
        rows = {(partition_id, i) for i in sample_ids if isinstance(i, str)}
        if (
            rows
            and rows <= self._known
            and not self._owner
            and (args or kwargs.get("fields") is not None)
        ):
            kwargs["tags"], args = None, args[:1]
        receipt = super().put_samples(sample_ids, partition_id, *args, **kwargs)
        self._known |= rows
        return receipt

"""Clients of ``ray_store`` that are right in the owner and wrong in processes that attach."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.ray_store import TARGET as RIGHT
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants import broken
from rlconform.mutants.races import RacyClient
from rlconform.wire import rows_of, stack_or_nest
from rlconform.wire.leaves import is_jagged

breaks = partial(broken, RIGHT)


@breaks("CLAIM-05", says="the blocked claim to come back within")
class WakesByItsOwnPutsAlone(RayStoreClient):
    """An attached client waits for word of a put, and hears only of those of its own process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._news = threading.Event()

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Put, and wake who waits here."""
        receipt = super().put_samples(*args, **kwargs)
        self._news.set()
        return receipt

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
        """Claim; where that waits, ask at first, in the end, and after each put of this process."""
        asked = (partition_id, task_name, required_fields, batch_size, dp_rank)
        deadline = time.monotonic() + timeout_s
        while blocking and not self._owner:
            self._news.clear()
            try:
                return super().claim_meta(*asked, True, 0.0)
            except TimeoutError:
                if not self._news.wait(deadline - time.monotonic()):
                    break
        return super().claim_meta(*asked, blocking, 0.0 if not self._owner else timeout_s)


@breaks("CLAIM-06", says="TimeoutError")
class GivesWhatThereIsFromAfar(RayStoreClient):
    """An attached client's wait ends with what is ready, where it should end with an error."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim, at the timeout what there is."""
        try:
            return super().claim_meta(*args, **kwargs)
        except TimeoutError:
            if self._owner:
                raise
            return super().claim_meta(*args, **{**kwargs, "blocking": False})


@breaks("LIFE-02", says="PlaneUnavailable", may_fail=("LIFE-06",))
class CountsItsCloses(RayStoreClient):
    """The plane counts closes: one client that closes twice stands for two."""

    _closed = 0

    def close(self) -> None:
        """Close; with one's second close nobody seems to be left."""
        super().close()
        self._closed += 1
        if self._closed == 2 and not self._owner:
            self._connection.kill_controller()


@breaks("CLEAR-03", says="not to be readable")
class ClearsNothingFromAfar(RayStoreClient):
    """Keeps who put what in the owner: an attached process has nothing that it could clear."""

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Clear what is named; of one's own, what the owner knows of."""
        if sample_ids is not None or self._owner:
            super().clear_samples(sample_ids, partition_id)


@breaks("CLEAR-03", says="not to be readable")
class LastWriterOwns(RacyClient):
    """A row is that of the process that wrote to it last: a write-back takes it from the driver."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        super().__init__("LastWriterOwns", cfg, bootstrap)


class _CarriesOthersRows(RayStoreClient):
    """A client that keeps what it put, and gets what others put by another way."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._own: set[str] = set()

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, and note what is one's own."""
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        self._own.update(sample_ids)
        return receipt

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read; others' rows as they arrive."""
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()):
            if isinstance(leaf, Tensor) and not self._own.issuperset(sample_ids):
                batch.set(name, self.arrived(leaf))
        return batch

    def arrived(self, leaf: Tensor) -> Tensor:
        """A column as it comes from another process."""
        raise NotImplementedError


@breaks("PUT-01", says="of torch.float64")
class NarrowsOnTheWay(_CarriesOthersRows):
    """Others' doubles come by a way on which they are floats; one's own never took it."""

    def arrived(self, leaf: Tensor) -> Tensor:
        """Doubles as floats."""
        return leaf.float() if leaf.dtype is torch.float64 else leaf


@breaks("PUT-06", "PUT-07", says="row")
class FillsEmptyRowsOnTheWay(_CarriesOthersRows):
    """Others' rows come in messages, of which there is none without content: a zero fills it."""

    def arrived(self, leaf: Tensor) -> Tensor:
        """Empty rows of a ragged column as rows of one zero."""
        if not is_jagged(leaf):
            return leaf
        rows = [row if len(row) else row.new_zeros(1, *row.shape[1:]) for row in rows_of(leaf)]
        return stack_or_nest(rows)

"""What a call that fails leaves behind in its process."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, Names


@ray_mutant("PUT-13", evidence="expected", may_fail="GET-10", scattered=True)
class RefusedReadLeavesTransactionOpen(RayStoreClient):
    """Repeats the reads of a process after one failed, until its next put, claim or clear.

    As in a transaction that an error leaves open, whose reads see what was there before.
    """

    _read = State(dict[tuple[str, ...], TensorDict])
    _is_open = False

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        try:
            request = (partition_id, *sample_ids, "", *select_fields)
            if self._is_open and request in self._read:
                return self._read[request].clone()
            self._read[request] = super().get_samples(sample_ids, partition_id, select_fields)
        except LookupError:
            self._is_open = True
            raise
        return self._read[request].clone()

    def _end(self) -> None:
        self._read.clear()
        self._is_open = False

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._end()
        return super().put_samples(*args, **kwargs)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._end()
        return super().claim_meta(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._end()
        super().clear_samples(*args, **kwargs)

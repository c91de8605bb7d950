"""Large puts that are stored in several steps, between which another process may read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags


class _PutsInSteps(RayStoreClient):
    """A client that stores a put in several steps, if its rows exist; the last one has the tags."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if (
            isinstance(fields, TensorDict)
            and isinstance(partition_id, str)
            and set(self.list_sample_ids(partition_id)).issuperset(sample_ids)
        ):
            *earlier, last = self.steps(fields)
            for names in earlier:
                super().put_samples(sample_ids, partition_id, fields.select(*names))
            receipt = super().put_samples(sample_ids, partition_id, fields.select(*last), tags)
            return replace(receipt, fields=list(map(str, fields.keys())))
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def steps(self, fields: TensorDict) -> Iterator[list[str]]:
        """Yield the names of the columns of each step: all in one, which is right."""
        yield list(map(str, fields.keys()))


def _bytes_of(fields: TensorDict, name: str) -> int:
    leaf = fields.get(name)
    return leaf.nbytes if isinstance(leaf, torch.Tensor) else 0


#: Bytes of a column that is sent before the others.
BULK = 1 << 20


@ray_mutant("PUT-22", evidence="of one put", may_fail="LIFE-05", chance=True)
class PutLargeColumnsSentFirst(_PutsInSteps):
    """Stores columns of 1 MiB and more before the others.

    A reader that comes between gets the new value of one field and the old one of another.
    """

    def steps(self, fields: TensorDict) -> Iterator[list[str]]:
        names = list(map(str, fields.keys()))
        if large := [name for name in names if _bytes_of(fields, name) >= BULK]:
            yield large
        yield names


@ray_mutant("PUT-22", evidence="of one put", may_fail="LIFE-05", chance=True)
class PutOfManyColumnsInBatches(_PutsInSteps):
    """Stores at most 64 columns in a step."""

    def steps(self, fields: TensorDict) -> Iterator[list[str]]:
        names = list(map(str, fields.keys()))
        for start in range(0, max(1, len(names)), 64):
            yield names[start : start + 64]


#: Bytes of a message of ``PutCutIntoMessages``.
MESSAGE = 8 << 20


@ray_mutant("PUT-22", evidence="of one put", may_fail="LIFE-05", chance=True)
class PutCutIntoMessages(_PutsInSteps):
    """Stores columns of at most 8 MiB in a step, and a larger column alone."""

    def steps(self, fields: TensorDict) -> Iterator[list[str]]:
        message: list[str] = []
        room = MESSAGE
        for name in map(str, fields.keys()):
            size = _bytes_of(fields, name)
            if message and size > room:
                yield message
                message, room = [], MESSAGE
            message.append(name)
            room -= size
        yield message

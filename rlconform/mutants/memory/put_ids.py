"""Sample ids that the plane truncates, joins, normalizes or hashes."""

from __future__ import annotations

import unicodedata
import zlib
from typing import Any

from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import Call, State
from rlconform.mutants.memory.helpers import get_mutant, memory_mutant, partition_of
from rlconform.mutants.types import Ids, Names


def _checksum(sample_id: str) -> int:
    return zlib.crc32(sample_id.encode())


@get_mutant("PUT-20", evidence="row:")
def PutIdsFoundByChecksum(read: Call) -> TensorDict:
    """Finds rows by a 32-bit checksum of their ids; if two collide, it reads the older row."""
    oldest: dict[int, str] = {}
    for sample_id in partition_of(read).sample_ids:
        oldest.setdefault(_checksum(sample_id), sample_id)
    found = [oldest.get(_checksum(sample_id), sample_id) for sample_id in read.sample_ids]
    return read(sample_ids=found)


class Renaming(MemoryClient):
    """A plane that stores rows under a name made from the id; the last row put has the name.

    Claims return the id that the caller put.
    """

    _owner = State(dict[tuple[str, str], str])

    def name_of(self, sample_id: str) -> str:
        """The name under which a row is stored."""
        raise NotImplementedError

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        for sample_id in sample_ids:
            self._owner[partition_id, self.name_of(sample_id)] = sample_id
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        owners = sample_ids
        if isinstance(sample_ids, list) and all(isinstance(i, str) for i in sample_ids):
            owners = [self._owner.get((partition_id, self.name_of(i)), i) for i in sample_ids]
        return super().get_samples(owners, partition_id, select_fields)

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        for key, owner in list(self._owner.items()):
            if key[0] == partition_id and (sample_ids is None or owner in sample_ids):
                del self._owner[key]


@memory_mutant("PUT-20", evidence="row 27 of 'x'")
class PutIdsUnicodeNormalized(Renaming):
    """Normalizes ids to NFC, so two ids with the same composed form are one row."""

    def name_of(self, sample_id: str) -> str:
        return unicodedata.normalize("NFC", sample_id)


@memory_mutant("PUT-20", evidence="row:")
class PutLongIdsTruncated(Renaming):
    """Truncates ids to 1000 characters."""

    def name_of(self, sample_id: str) -> str:
        return sample_id[:1000]


@memory_mutant("PUT-20", evidence="row:")
class PutIdsTrimmed(Renaming):
    """Strips blanks around ids, as configuration parsers do."""

    def name_of(self, sample_id: str) -> str:
        return sample_id.strip(" ")


@memory_mutant("PUT-20", evidence="row:")
class PutKeyOfIdAndFieldAmbiguous(MemoryClient):
    """Joins id and field with ``@`` as a key, so ``a@x`` and x collide with a and ``x@x``."""

    _owner = State(dict[tuple[str, str], tuple[str, str]])

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        for field in receipt.fields or ():
            self._owner.update({(partition_id, f"{i}@{field}"): (i, field) for i in sample_ids})
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if len(sample_ids) == len(select_fields) == 1:
            (name,) = select_fields
            own = (sample_ids[0], name)
            owner, field = self._owner.get((partition_id, f"{own[0]}@{name}"), own)
            if (owner, field) != own:
                batch.set(name, super().get_samples([owner], partition_id, [field]).get(field))
        return batch

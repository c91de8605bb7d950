"""Sample ids that the plane truncates, joins, normalizes or hashes."""

from __future__ import annotations

import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State, applied
from rlconform.mutants.memory.helpers import (
    get_mutant,
    get_samples_mutant,
    memory_mutant,
    partition_of,
)
from rlconform.mutants.types import Ids, Names


def _checksum(sample_id: str) -> int:
    return zlib.crc32(sample_id.encode())


@get_mutant("PUT-20", evidence="row:")
def PutIdsFoundByChecksum(read: MethodCall) -> TensorDict:
    """Finds rows by a 32-bit checksum of their ids; if two collide, it reads the older row."""
    oldest: dict[int, str] = {}
    for sample_id in partition_of(read).sample_ids:
        oldest.setdefault(_checksum(sample_id), sample_id)
    found = [oldest.get(_checksum(sample_id), sample_id) for sample_id in read.sample_ids]
    return read(sample_ids=found)


class KnowsLastPuts(MemoryClient):
    """A client without a defect that records ids in the order of their last puts."""

    order = State(lambda: defaultdict[str, dict[str, None]](dict))

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        for sample_id in sample_ids:
            self.order[partition_id].pop(sample_id, None)
            self.order[partition_id][sample_id] = None
        return receipt

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        for sample_id in list(self.order[partition_id]) if sample_ids is None else sample_ids:
            self.order[partition_id].pop(sample_id, None)


def _read_by_name(read: MethodCall, name_of: Callable[[str], str]) -> Any:
    """Read as if rows were stored under ``name_of(id)``: of equal names, read the last row put."""
    ids = read.sample_ids
    if not isinstance(ids, list) or not all(isinstance(i, str) for i in [read.partition_id, *ids]):
        return read()
    last = {name_of(sample_id): sample_id for sample_id in read.plane.order[read.partition_id]}
    return read(sample_ids=[last.get(name_of(i), i) for i in ids])


#: Decorator of a function that returns the name under which a row is stored.
name_mutant = applied(get_samples_mutant, _read_by_name, plane=KnowsLastPuts)


@name_mutant("PUT-20", evidence="of 'x'")
def PutIdsUnicodeNormalized(sample_id: str) -> str:
    """Normalizes ids to NFC, so two ids with the same composed form are one row."""
    return unicodedata.normalize("NFC", sample_id)


@name_mutant("PUT-20", evidence="row:")
def PutLongIdsTruncated(sample_id: str) -> str:
    """Truncates ids to 1000 characters."""
    return sample_id[:1000]


@name_mutant("PUT-20", evidence="row:")
def PutIdsTrimmed(sample_id: str) -> str:
    """Strips blanks around ids, as configuration parsers do."""
    return sample_id.strip(" ")


@name_mutant("PUT-20", evidence="row:")
def PutIdsKeptAsUuid(sample_id: str) -> str:
    """Keeps an id that is a UUID as its 16 bytes, so all spellings of it are one row."""
    with suppress(ValueError):
        return str(UUID(sample_id))
    return sample_id


@memory_mutant("PUT-20", evidence="row:")
class PutKeyOfIdAndFieldAmbiguous(MemoryClient):
    """Keys values by ``id@field``, so field x of id ``a@x`` collides with field ``x@x`` of id a."""

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

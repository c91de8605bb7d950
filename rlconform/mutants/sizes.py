"""Planes that are right for a few small rows, and wrong from some number of rows or bytes on."""

from __future__ import annotations

from tensordict import TensorDictBase

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import Tags
from rlconform.mutants.claims import Claimed
from rlconform.mutants.clears import _ClearsOthers
from rlconform.mutants.engines import breaks_engine, rows_in

#: Rows that one request takes.
PAGE = 100
#: Rows that one message of a put takes.
CHUNK = 512
#: Rows of a partition that a store keeps.
ROOM = 600


@breaks_engine("CLAIM-04", says="1536 rows ready", may_fail=("CLAIM-05",))
class PagesClaims(MemoryEngine):
    """A claim hands out one page of a listing, of 100 rows at most, and never asks for the next."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows, of one page."""
        return super().claim(partition_id, task, names, min(rows, PAGE), wait_s)


@breaks_engine("CLEAR-01", "CLEAR-03", says="not to be readable")
class ClearsAPage(_ClearsOthers):
    """A clear deletes the first 100 rows, as many as one request takes, and forgets the others."""

    def meant(self, living: dict[str, IndexRow], sample_ids: list[str] | None) -> list[str] | None:
        """The first of the rows."""
        return (list(living) if sample_ids is None else sample_ids)[:PAGE]


@breaks_engine("GET-01", says="row 0 of 'x' =")
class SwapsLaterChunks(MemoryEngine):
    """Sends a put of more than 512 rows in two messages, and writes the second one backwards."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, later rows under each other's ids."""
        ids = [*sample_ids[:CHUNK], *reversed(sample_ids[CHUNK:])]
        super().put(partition_id, ids, fields, tags)


@breaks_engine("GET-01", "CLAIM-04", "CLAIM-05", "CLEAR-01", says="never put, or cleared")
class DropsRowsOfLargePartitions(MemoryEngine):
    """Keeps the newest 600 rows of a partition, as a full queue does: older ones go, silently."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and drop what is too old."""
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            old = [row.sample_id for row in rows_in(index, partition_id, None)][:-ROOM]
        if old:
            super().clear(partition_id, old)

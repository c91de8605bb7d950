"""Clears of all rows of a process that go through the partition page by page."""

from __future__ import annotations

from typing import Any

from rlconform.backends.ray_store.controller import Controller
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import controller_mutant
from rlconform.mutants.types import Ids

#: Rows of a page.
PAGE = 1000


@controller_mutant("CLEAR-03", chance=False, evidence="not to be readable")
class ClearAllEndsAtPageOfOthers(Controller):
    """Clears the rows of a process from its first one on, until a page has none of them."""

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        if sample_ids is None:
            rows = rows_in(self._index, partition_id, None)
            own = [row.writer == writer for row in rows]
            at, sample_ids = own.index(True) if any(own) else len(rows), []
            while any(own[at : at + PAGE]):
                page = rows[at : at + PAGE]
                sample_ids += [row.sample_id for row in page if row.writer == writer]
                at += PAGE
        return await super().clear(partition_id, sample_ids, writer)

"""Rows that move to the process that wrote to them last, in another form than they were put."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from tensordict import TensorDict

from rlconform.backends.ray_store.controller import Controller, Refusal
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.types import Ids, Names
from rlconform.wire import is_object_column, object_column, object_rows


class _KnowsMoved(Controller):
    """Knows the objects of rows to which another process than their first writer has written."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._moved: dict[tuple[str, str], set[str]] = {}  # fields by partition and id

    async def commit(self, put: Any, columns: Any, reference: Any) -> Any:
        answer = await super().commit(put, columns, reference)
        if columns and not isinstance(answer, Refusal):
            rows = self._index.partition(put.partition_id)._rows
            for sample_id in put.sample_ids:
                key, row = (put.partition_id, sample_id), rows[sample_id]
                if row.writer != put.writer:
                    self._moved[key] = self._moved.get(key, set()) | row.fields
                self._moved.get(key, set()).difference_update(columns)
        return answer

    async def moved(self, partition_id: str, sample_ids: Ids) -> list[set[str]]:
        return [self._moved.get((partition_id, one), set()) for one in sample_ids]


@ray_mutant("PUT-28", evidence="log", may_fail="PUT-21 R3-01")
class ObjectsMovedAsJson(ControllerClient):
    """Returns objects as JSON has them, once another process has written to their row.

    Stores that move a row to the process that writes to it do so.
    """

    controller_class = _KnowsMoved

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        names = [name for name in map(str, batch.keys()) if is_object_column(batch.get(name))]
        moved = self._connection.call("moved", partition_id, list(sample_ids)) if names else []
        for name in names if any(moved) else ():
            rows = object_rows(batch.get(name), len(sample_ids))
            forms = [
                _as_json(row) if name in fields else row
                for row, fields in zip(rows, moved, strict=True)
            ]
            batch.set(name, object_column(forms))
        return batch


def _as_json(value: Any) -> Any:
    with suppress(TypeError, ValueError):
        return json.loads(json.dumps(value))
    return value

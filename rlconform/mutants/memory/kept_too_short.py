"""Columns kept as one row, and what planes note of partitions and lose before it is needed."""

from __future__ import annotations

from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import is_dense, mapped
from rlconform.mutants.memory.helpers import engine_mutant, find_rows, get_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names

#: Bytes from which on a column of equal rows is kept as one row.
PAYS = 16 << 10
#: Partitions without rows of which a plane keeps the tasks.
IDLE = 64


def _expanded(column: Tensor) -> Tensor:
    pays = column.dim() > 0 and len(column) > 1 and column.nbytes >= PAYS
    alike = pays and bool((column == column[:1]).all())
    return column[:1].clone().expand(column.shape) if alike else column


@get_mutant("PUT-08", evidence="untouched by a write to row 0", may_fail="PUT-01 PUT-09 GET-13")
def ConstantColumnsExpanded(read: MethodCall) -> TensorDict:
    """Keeps a column of equal rows as one row, and returns all rows as views of it."""
    batch: TensorDict = mapped(read(), _expanded, is_dense)
    return batch


@engine_mutant("REG-01", evidence="is not registered", may_fail="REG-05 CLAIM-11")
class IdleRegistrationsForgotten(MemoryEngine):
    """Keeps the registrations of the 64 newest partitions without rows, and of all others."""

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        with self._locked() as index:
            idle = [name for name, held in index._partitions.items() if not held.size]
            for name in idle[:-IDLE]:
                del index._partitions[name]


@engine_mutant("CLEAR-03", evidence="not to be readable", may_fail="CLEAR-01 CLAIM-02")
class RegistrationForgetsWhoPut(MemoryEngine):
    """Notes the ids that a process puts for its clears of everything, anew at a registration."""

    _noted = State(dict[str, list[str]])

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self._noted[partition_id] = []

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        self._noted.setdefault(partition_id, []).extend(ids)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        own = self._noted.get(partition_id, []) if sample_ids is None else sample_ids
        there = {row.sample_id for row in find_rows(self, partition_id)}
        super().clear(partition_id, [i for i in dict.fromkeys(own) if i in there])

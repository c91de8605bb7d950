"""Claims of rows that were claimed before, or that are ready and never come."""

# ruff: noqa: ARG002 - a mutant looks at what it needs of a call

from __future__ import annotations

from tensordict import TensorDict, TensorDictBase

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import Tags, UnknownField
from rlconform.mutants.engines import breaks_engine, give_back, mark, rows_in

Claimed = tuple[list[str], list[Tags]]


@breaks_engine(
    "CLAIM-07",
    says="rows after it",
    may_fail=("CLAIM-02", "CLAIM-05", "CLAIM-10", "CLAIM-15", "STAT-01"),
)
class LooksAtARowOnce(MemoryEngine):
    """Passes each row once, and not again when its last field has come."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and leave out of the queues what they have passed."""
        names = set() if fields is None else set(map(str, fields.keys()))
        with self._locked() as index:
            known = rows_in(index, partition_id, sample_ids)
            grown = [row for row in known if names - row.fields]
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            index.partition(partition_id)._queues.discard(grown)


class _QueuesAgain(MemoryEngine):
    """Queues the rows of a put once more, for tasks that have claimed them."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and queue rows."""
        names = set() if fields is None else set(map(str, fields.keys()))
        with self._locked() as index:
            known = rows_in(index, partition_id, sample_ids)
            old = [row for row in known if self.queues(row, names)]
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            for row in old:
                for task in row.claimed_by:
                    give_back(index.partition(partition_id), [row], task)

    def queues(self, row: IndexRow, names: set[str]) -> bool:
        """Whether a write of these fields queues the row."""
        raise NotImplementedError


@breaks_engine(
    "CLAIM-08", says="rows claimed again after a write", may_fail=("CLAIM-10", "STAT-01")
)
class QueuesOverwrittenRows(_QueuesAgain):
    """A write of a field queues its row, whether it is the first one or not."""

    def queues(self, row: IndexRow, names: set[str]) -> bool:
        """Whether a write of these fields queues the row."""
        return bool(row.fields & names)


@breaks_engine("CLAIM-08", says="rows claimed again", may_fail=("CLAIM-02", "CLAIM-10"))
class QueuesGrownRows(_QueuesAgain):
    """A field that is new to its row makes it ready, for tasks too that claimed it before."""

    def queues(self, row: IndexRow, names: set[str]) -> bool:
        """Whether a write of these fields queues the row."""
        return bool(names - row.fields)


@breaks_engine(
    "CLAIM-08",
    says="rows claimed again after a stamp",
    may_fail=("CLAIM-02", "TAG-01", "CLAIM-10", "STAT-01"),
)
class QueuesStampedRows(_QueuesAgain):
    """A put of tags alone announces its rows like any other put, and they are claimed again."""

    def queues(self, row: IndexRow, names: set[str]) -> bool:
        """Whether a write of these fields queues the row."""
        return not names


@breaks_engine(
    "CLAIM-08", says="rows claimed again by other fields", may_fail=("CLAIM-02", "CLAIM-10")
)
class CursorForEachListOfFields(MemoryEngine):
    """A task that asks for other fields than before starts from the first row again."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim from the task's cursor for these fields."""
        cursor = f"{task}|{sorted(names)}"
        with self._locked() as index:
            partition = index.partition(partition_id)
            if task in partition._tasks:
                partition._tasks.add(cursor)
        came = super().claim(partition_id, cursor, names, rows, wait_s)
        with self._locked() as index:
            for row in rows_in(index, partition_id, came[0]):
                if task not in row.claimed_by:
                    mark(index.partition(partition_id), [row], task)
        return came


@breaks_engine(
    "CLAIM-09", "SHARD-02", "PUT-13", says="it was delivered", may_fail=("PUT-09", "LIFE-05")
)
class DeliversOnce(MemoryEngine):
    """Hands a claimed row's bytes out once, as a queue does, and lets go of them."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._delivered: set[tuple[IndexRow, str]] = set()

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        """Read rows; of claimed ones, what was not read yet."""
        came = super().get(partition_id, sample_ids, names)
        with self._locked() as index:
            rows = rows_in(index, partition_id, sample_ids)
        read = {(row, name) for row in rows for name in names if row.claimed_by}
        if read & self._delivered:
            raise UnknownField("it was delivered")
        self._delivered |= read
        return came


@breaks_engine(
    "CLAIM-09",
    says="never put, or cleared",
    may_fail=(
        "REG-03",
        "REG-04",
        "PUT-12",
        "TAG-01",
        "CLAIM-08",
        "STAT-01",
        "CLEAR-01",
        "CLEAR-04",
    ),
)
class FreesWhatEveryTaskClaimed(MemoryEngine):
    """Frees a row once the last of its partition's tasks has claimed it, before anyone reads it."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows, and drop those that nobody waits for any more."""
        came = super().claim(partition_id, task, names, rows, wait_s)
        with self._locked() as index:
            tasks = index.partition(partition_id)._tasks
            claimed = rows_in(index, partition_id, came[0])
            done = [row.sample_id for row in claimed if row.claimed_by >= tasks]
        self.clear(partition_id, done)
        return came


@breaks_engine("CLAIM-15", says="one of the groups")
class CutsTheLastGroup(MemoryEngine):
    """Takes whole groups as long as they fit, and of the last as many rows as were asked for."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim whole groups, and give back what is too much."""
        with self._locked() as index:
            partition = index.partition(partition_id)
            size = max(1, partition._group_size)
            whole = rows if wait_s is not None else -(-rows // size) * size
            ids, tags = super().claim(partition_id, task, names, whole, wait_s)
            give_back(partition, rows_in(index, partition_id, ids[rows:]), task)
            return ids[:rows], tags[:rows]

"""Claims that wait and are woken wrongly, or by the wrong rows, and claims of odd rows."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.claims import Claimed, _claimed
from rlconform.mutants.engines import breaks, breaks_engine, mark, rows_in
from rlconform.wire import object_rows, rows_of


class _NotifiesOne(threading.Condition):
    def notify_all(self) -> None:
        """Wake one of those who wait: written for planes with one consumer."""
        self.notify()


@breaks_engine("CLAIM-05", says="a claim for x to come back")
class WakesOneWaiter(MemoryEngine):
    """A put wakes one claim (notify, not notify_all): it may be one that waits for other rows."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        if owner:
            self._plane.changed = _NotifiesOne()

    def close(self) -> None:
        """Let go of the plane, and tell all who wait."""
        super().close()
        with self._plane.changed:
            self._plane.changed.notify(len(threading.enumerate()))


@breaks("CLAIM-05", says="a put beside 16 claims")
class FourCallsAtOnce(MemoryClient):
    """Has four threads for calls: four claims that wait keep out the put that they wait for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._threads = threading.Semaphore(4)

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Put, when a thread is free."""
        with self._threads:
            return super().put_samples(*args, **kwargs)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim, when a thread is free."""
        with self._threads:
            return super().claim_meta(*args, **kwargs)


@breaks_engine("CLAIM-05", says="in place of the one that was cleared")
class CountsRowsThatWereCleared(MemoryEngine):
    """A claim that waits counts rows as they come: one that is cleared meanwhile still counts."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._cleared: Counter[str] = Counter()

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, and count those that nobody had claimed."""
        with self._locked() as index:
            rows = rows_in(index, partition_id, sample_ids)
            self._cleared[partition_id] += sum(1 for r in rows if r.fields and not r.claimed_by)
        super().clear(partition_id, sample_ids)

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        """Wait until as many rows have come."""
        partition = self._plane.index.partition(partition_id)
        partition.check_exact(rows)
        deadline = time.monotonic() + wait_s
        due = rows + self._cleared[partition_id]
        while not partition.is_ready(task, required, max(0, due - self._cleared[partition_id])):
            if not self._plane.changed.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError("too few rows")
            self.check_open()


@breaks("CLAIM-05", says="the claim to wait for a second row")
class DoesNotBlockUnlessTold(MemoryClient):
    """Has another default than the contract: a claim that doesn't say whether it waits, doesn't."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows."""
        return super().claim_meta(*args, **{"blocking": False, **kwargs})


@breaks_engine("CLAIM-06", says="an end after 5.")
class GivesUpAfterFiveSeconds(MemoryEngine):
    """A claim that waits is one request, and requests end after 5 s, whatever timeout it names."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows, waiting for them for a while."""
        wait_s = None if wait_s is None else min(wait_s, 5.0)
        return super().claim(partition_id, task, names, rows, wait_s)


@breaks_engine("TAG-01", says="tags of the woken claim")
class WokenClaimsHaveNoTags(MemoryEngine):
    """Answers a claim that had to wait with the ids that woke it, and without their tags."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows, with tags if they are ready."""
        with self._locked() as index:
            ready = index.partition(partition_id).is_ready(task, frozenset(names), rows)
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        return ids, tags if ready or wait_s is None else [{} for _ in ids]


@breaks("TAG-06", says="expected sequence_lengths; got None")
class NoLengthWhereItIsZero(MemoryClient):
    """Writes ``if all(lengths)``: one aborted row, of length 0, and no row has a length."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows, with lengths if none is 0."""
        meta = super().claim_meta(*args, **kwargs)
        return meta if all(meta.sequence_lengths or []) else replace(meta, sequence_lengths=None)


@breaks_engine("CLAIM-07", says="an aborted rollout's")
class EmptyRowsAreNeverReady(MemoryEngine):
    """Takes a row for produced by its bytes: one of no tokens, or of None, is handed to nobody."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows, and pass over those without bytes."""
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        full = [n for n, i in enumerate(ids) if not self._lacks_bytes(partition_id, i, names)]
        return [ids[n] for n in full], [tags[n] for n in full]

    def _lacks_bytes(self, partition_id: str, sample_id: str, names: list[str]) -> bool:
        try:
            leaves = self.get(partition_id, [sample_id], names).values()
        except LookupError:  # it was cleared meanwhile
            return False
        return any(
            not rows_of(leaf)[0].numel()
            if isinstance(leaf, Tensor)
            else object_rows(leaf, 1)[0] is None
            for leaf in leaves
        )


@breaks_engine("CLAIM-15", says="of which one lacks a field")
class GroupsAreWholeWhenTheirRowsAreThere(MemoryEngine):
    """Takes a group for whole once all its rows are there, and hands out those that are ready."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim the ready rows of groups that are there."""
        with self._locked() as index:
            partition = index.partition(partition_id)
            size = partition._group_size
            if size == 1 or wait_s is not None or not partition.is_ready(task, frozenset(names), 0):
                return super().claim(partition_id, task, names, rows, wait_s)
            there = Counter(row.group for row in partition._rows.values() if row.fields)
            ready = [
                row
                for row in partition._rows.values()
                if there[row.group] == size and row.fields.issuperset(names)
                if task not in row.claimed_by
            ]
            groups = list(dict.fromkeys(row.group for row in ready))[: rows // size]
            chosen = [row for row in ready if row.group in groups]
            mark(partition, chosen, task)
            return _claimed(chosen)


@breaks("CLAIM-05", says="the claim to wait for the third row")
class RanksNeverWait(MemoryClient):
    """Serves a rank's claim from what there is, though it was asked to wait."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim; a rank at once."""
        if kwargs.get("dp_rank") is not None:
            kwargs["blocking"] = False
        return super().claim_meta(*args, **kwargs)

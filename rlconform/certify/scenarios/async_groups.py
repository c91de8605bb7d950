"""``AsyncGroups``: processes put groups, while the driver trains on earlier ones and clears them.

    rollout processes ── put x ──▶ plane                 each called by a thread of the check
                      ── name of the group ──▶ queue
    driver ── takes a chunk of groups from the queue, stamps tags ──▶ plane
    rank   ── reads x of the chunk, writes y group by group ◀──▶ plane  ┐ at the same time
    driver ── clears all groups but one of the chunk before ──▶ plane   ┘
           ── reads y and writes z of the chunk ◀──▶ plane
           ── clears the last group of the chunk before ──▶ plane
    all    ── read what must be there, and what must be gone ◀── plane

The driver waits for the queue and for the rank. A rollout process waits while ``AHEAD`` of its
groups are in the queue. Nobody claims: rows are reached by the ids of the queue.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.scenarios.labeled_rows import labeled_column, labeled_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_unreadable
from rlconform.certify.threads import BackgroundCall, run_concurrently
from rlconform.contract import DataPlaneClient

#: Rows of a group, and bytes of a row's tokens: a group is large enough to be stored by reference.
GROUP_SIZE = 4
WIDTH = 1 << 14
#: Groups that each rollout process may be ahead of the driver.
AHEAD = 4
#: Groups that the driver trains on at a time.
CHUNK = 4
#: Columns of the rollout, of a rank and of the driver.
COLUMNS = ("x", "y", "z")


def row_ids(group: str) -> list[str]:
    """Return the ids of a group's rows."""
    return [f"{group}_g{n}" for n in range(GROUP_SIZE)]


def ids_of(groups: Sequence[str]) -> list[str]:
    """Return the ids of the rows of several groups."""
    return [sample_id for group in groups for sample_id in row_ids(group)]


def put_group(part: PartitionUnderTest, group: str, weight_version: int) -> None:
    """Put all rows of a new group in one put, as a rollout process does."""
    ids = row_ids(group)
    tags = [{"weight_version": weight_version} for _ in ids]
    part.put(ids, tags, x=labeled_column(part.id, ids, "x", width=WIDTH))


def clear_groups(part: PartitionUnderTest, groups: Sequence[str]) -> None:
    """Clear all rows of the groups in one call."""
    part.clear(ids_of(groups))


def overlap(
    clearing: PartitionUnderTest,
    write_back: Callable[[str], None],
    written: Sequence[str],
    cleared: Sequence[str],
) -> None:
    """Write back to groups one by one; from the second write on, clear groups one by one too."""
    begun = threading.Event()

    def write() -> None:
        try:
            for group in written:
                write_back(group)
                begun.set()
        finally:
            begun.set()

    def clear() -> None:
        begun.wait()
        for group in cleared:
            clear_groups(clearing, [group])

    run_concurrently([write, clear], clearing.timeouts.check / 2, "write-back and clear")


def expect_whole(part: PartitionUnderTest, groups: Sequence[str], *columns: str) -> None:
    """Expect a read of all rows of the groups to return their own bytes in each column."""
    ids = ids_of(groups)
    widths = {"x": WIDTH}
    rows = {c: labeled_rows(part.id, ids, c, width=widths.get(c, 0)) for c in columns}
    part.expect_rows(ids, **rows)


def expect_gone(
    part: PartitionUnderTest, group: str, *columns: str, rows: int = GROUP_SIZE
) -> None:
    """Expect the first ``rows`` of the group to be unreadable in each column, by default in all."""
    for sample_id in row_ids(group)[:rows]:
        for column in columns or COLUMNS:
            expect_unreadable(partial(part.get, [sample_id], column), sample_id, column)


@dataclass
class AsyncGroups:
    """Runs the driver of the module's diagram; the clients are of other processes.

    ``part`` is a fresh partition as the driver sees it. A violation names the first row that was
    not as it must be.
    """

    part: PartitionUnderTest
    rollouts: Sequence[DataPlaneClient]
    rank: DataPlaneClient

    def run(self, chunks: int) -> None:
        """Train on this many chunks, fewer on a slow plane; every group is cleared in the end."""
        cleared: list[str] = []
        trained: list[str] = []  # the chunk before
        with self._rolling_out() as take:
            for _ in self.part.rounds(chunks):
                chunk = [take() for _ in range(CHUNK)]
                leaving, staying = trained[:-1], trained[-1:]
                self._train(chunk, leaving)
                for view in self._views():
                    expect_whole(view, [*chunk, *staying], *COLUMNS)
                clear_groups(self.part, staying)
                for group in trained:
                    expect_gone(self.part, group)
                cleared += trained
                trained = chunk
        clear_groups(self.part, trained)
        for group in cleared + trained:
            for view in self._views():
                expect_gone(view, group, rows=1)

    def _train(self, chunk: Sequence[str], leaving: Sequence[str]) -> None:
        """Write the columns of a chunk; groups of an earlier chunk are cleared meanwhile."""
        part, rank = self.part, self.part.via(self.rank)
        ids = ids_of(chunk)
        part.put(ids, [{"reward": 1.0} for _ in ids])
        expect_whole(rank, chunk, "x")

        def write_back(group: str) -> None:
            rank.put_labeled(row_ids(group), "y")

        overlap(part, write_back, chunk, leaving)
        expect_whole(part, chunk, "x", "y")
        part.put_labeled(ids, "z")

    def _views(self) -> list[PartitionUnderTest]:
        """Return the partition as the driver, the rank and each rollout process see it."""
        return [self.part, *(self.part.via(each) for each in (self.rank, *self.rollouts))]

    @contextmanager
    def _rolling_out(self) -> Iterator[Take]:
        """Let the rollout processes put groups during the block; yield what takes the next name."""
        over = threading.Event()
        ready: queue.Queue[str] = queue.Queue()
        free = [threading.Semaphore(AHEAD) for _ in self.rollouts]
        putting = [
            BackgroundCall(partial(self._roll_out, n, ready, free[n], over), f"rollout process {n}")
            for n in range(len(self.rollouts))
        ]
        try:
            yield Take(ready, free, putting, self.part.timeouts.operation + self.part.call_s)
        finally:
            over.set()
            for each in free:
                each.release()
        for rollout in putting:
            rollout.result(self.part.timeouts.operation + self.part.call_s)
        left = list(ready.queue)  # put, and not trained on
        expect_whole(self.part, left, "x")
        clear_groups(self.part, left)

    def _roll_out(
        self,
        number: int,
        ready: queue.Queue[str],
        free: threading.Semaphore,
        over: threading.Event,
    ) -> None:
        view = self.part.via(self.rollouts[number])
        made = 0
        while free.acquire() and not over.is_set():
            group = f"p{made}-{number}"
            put_group(view, group, made)
            ready.put(group)
            made += 1


@dataclass
class Take:
    """Takes groups from the queue."""

    ready: queue.Queue[str]
    free: Sequence[threading.Semaphore]
    putting: Sequence[BackgroundCall]
    timeout_s: float

    def __call__(self) -> str:
        """Wait for the next group and return its name; raise the error of a rollout process."""
        try:
            group = self.ready.get(timeout=self.timeout_s)
        except queue.Empty:
            for each in self.putting:
                each.returned_within(0.0)
            due = f"a rollout process to put a group within {self.timeout_s:g} s"
            raise ContractViolation(due, "nothing: its put still runs") from None
        self.free[int(group.rpartition("-")[2])].release()
        return group

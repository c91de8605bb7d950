"""``AsyncGroups``: processes put groups, while the driver trains on earlier ones and clears them.

    rollout processes ── put x ──▶ plane                 each called by a thread of the check
                      ── name of the group ──▶ queue
    driver ── takes a chunk of groups from the queue, stamps tags ──▶ plane
    rank   ── reads x, writes y of the chunk ◀──▶ plane    ┐ at the same time
    driver ── clears a group of an earlier chunk ──▶ plane ┘
           ── reads y, writes z of the chunk ◀──▶ plane
    all    ── read what must be there, and what must be gone ◀── plane

The driver waits for the queue and for the rank. A rollout process waits while ``AHEAD`` of its
groups are in the queue. Nobody claims: rows are reached by the ids of the queue.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
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
AHEAD = 3
#: Groups that the driver trains on at a time.
CHUNK = 2
#: Columns of the rollout, of a rank and of the driver.
COLUMNS = ("x", "y", "z")


def row_ids(group: str) -> list[str]:
    """Return the ids of a group's rows."""
    return [f"{group}_g{n}" for n in range(GROUP_SIZE)]


def put_group(part: PartitionUnderTest, group: str, weight_version: int) -> None:
    """Put all rows of a new group in one put, as a rollout process does."""
    ids = row_ids(group)
    tags = [{"weight_version": weight_version} for _ in ids]
    part.put(ids, tags, x=labeled_column(part.id, ids, "x", width=WIDTH))


def expect_whole(part: PartitionUnderTest, groups: Sequence[str], *columns: str) -> None:
    """Expect a read of all rows of the groups to return their own bytes in each column."""
    ids = [sample_id for group in groups for sample_id in row_ids(group)]
    widths = {"x": WIDTH}
    rows = {c: labeled_rows(part.id, ids, c, width=widths.get(c, 0)) for c in columns}
    part.expect_rows(ids, **rows)


def expect_gone(part: PartitionUnderTest, group: str, *columns: str) -> None:
    """Expect each row of the group to be unreadable in each column."""
    for sample_id in row_ids(group):
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
        waiting: list[str] = []  # trained, and not yet cleared
        with self._rolling_out() as take:
            for _ in self.part.rounds(chunks):
                chunk = [take() for _ in range(CHUNK)]
                leaving, staying = waiting[:1], waiting[1:]
                self._train(chunk, leaving)
                for view in self._views():
                    expect_whole(view, [*chunk, *staying], *COLUMNS)
                self.part.clear([i for group in staying for i in row_ids(group)])
                for group in leaving + staying:
                    expect_gone(self.part, group)
                cleared += leaving + staying
                waiting = chunk
        self.part.clear([i for group in waiting for i in row_ids(group)])
        for group in cleared + waiting:
            for view in self._views()[:2]:
                expect_gone(view, group)

    def _train(self, chunk: Sequence[str], leaving: Sequence[str]) -> None:
        """Write the columns of a chunk while another group is cleared."""
        part, rank = self.part, self.part.via(self.rank)
        ids = [sample_id for group in chunk for sample_id in row_ids(group)]
        part.put(ids, [{"reward": 1.0} for _ in ids])
        expect_whole(rank, chunk, "x")
        doomed = [sample_id for group in leaving for sample_id in row_ids(group)]
        calls = [partial(rank.put_labeled, ids, "y"), partial(part.clear, doomed)]
        run_concurrently(calls, part.timeouts.check / 2, "rank and driver")
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
        for each in putting:
            each.result(self.part.timeouts.operation + self.part.call_s)
        left = list(ready.queue)  # put, and not trained on
        expect_whole(self.part, left, "x")
        self.part.clear([i for group in left for i in row_ids(group)])

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
    """Takes the next group from the queue; calling it waits, and raises a rollout's error."""

    ready: queue.Queue[str]
    free: Sequence[threading.Semaphore]
    putting: Sequence[BackgroundCall]
    timeout_s: float

    def __call__(self) -> str:
        try:
            group = self.ready.get(timeout=self.timeout_s)
        except queue.Empty:
            for each in self.putting:
                each.returned_within(0.0)
            due = f"a rollout process to put a group within {self.timeout_s:g} s"
            raise ContractViolation(due, "nothing: its put still runs") from None
        self.free[int(group.rpartition("-")[2])].release()
        return group

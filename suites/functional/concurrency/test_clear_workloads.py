"""CLEAR-07: processes read, claim and clear the same rows concurrently, and reuse ids and slots."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.calls import hung, refused_alone
from rlconform.certify.concurrency.checkers.claims import duplicated, lost, phantoms
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import (
    LARGE_S,
    LARGE_TAKE,
    Claimer,
    Clearer,
    PutClearLoop,
    Reader,
)
from rlconform.certify.plugin.markers import requirement

SECONDS = 2.0

#: Seconds of each run, and how many rows the putting processes clear themselves. A wrong row shows
#: only if its slot is reused during a read. That is more likely if other processes clear, but on a
#: plane that clears faster than it puts, their clears leave few rows to read.
RUNS = ((1.0, 0), (1.0, 8), (3.0, 0))

#: Maximum pause between two clears, in seconds. With this pause, reads find twice as many rows.
PAUSE_S = 0.008

SHARED = tuple(f"r{n}" for n in range(24))


@requirement("CLEAR-07")
def test_reads_return_the_rows_asked_for_while_ids_are_reused(processes: WorkloadRunner) -> None:
    for seconds, clears in RUNS:
        writer = PutClearLoop(seconds, SHARED, clears=clears)
        other = Reader(SHARED) if clears else Clearer(SHARED, pause_s=PAUSE_S)
        history = processes.run(writer, writer, other, Reader(SHARED))
        check_history(history, "put_clear", wrong_rows, unwritten, stale_reads, refused_alone, hung)


@requirement("CLEAR-07")
def test_clears_remove_no_other_rows(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        writer = PutClearLoop(seconds, SHARED, clears=8)
        history = processes.run(writer, Clearer(SHARED), Claimer(), Claimer(reads=("x",)))
        rows = wrong_rows, unwritten, stale_reads
        check_history(history, "put_clear", lost, duplicated, phantoms, *rows, refused_alone, hung)


@requirement("CLEAR-07")
def test_large_reads_return_the_rows_asked_for_while_ids_are_reused(
    processes: WorkloadRunner,
) -> None:
    ids = tuple(f"r{n}" for n in range(2 * LARGE_TAKE))
    writer = PutClearLoop(LARGE_S, ids, clears=LARGE_TAKE // 6, shared=LARGE_TAKE)
    history = processes.run(writer, writer, Reader(ids, at_once=LARGE_TAKE))
    check_history(history, "put_clear", wrong_rows, unwritten, stale_reads, refused_alone, hung)

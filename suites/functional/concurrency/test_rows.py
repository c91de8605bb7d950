"""Rows under churn: reads and writes by several processes at once, ids and slots being reused."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.claims import duplicated, lost, phantoms
from rlconform.certify.concurrency.checkers.errors import hung, refused, refused_alone
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.checkers.tags import lost_updates
from rlconform.certify.concurrency.checkers.torn_reads import torn
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import (
    Claimer,
    Clearer,
    Overwriter,
    Producer,
    PutClearLoop,
    Reader,
    SinglePut,
    TagWriter,
)
from rlconform.certify.plugin.markers import requirement

SECONDS = 2.0
#: Seconds of each play, and the rows that who puts clears itself. A foreign row shows only where a
#: slot is reused between two looks. That is likelier where others clear; but on a plane that clears
#: faster than it puts, their clears leave little to be read.
CHURNS = ((1.0, 0), (1.0, 8), (3.0, 0))
#: At most so many seconds between two clears: reads find twice as many rows as without.
APART_S = 0.008
SHARED = tuple(f"r{n}" for n in range(24))
FIELDS = ("x", "y", "z", "extra")


@requirement("CLEAR-07")
def test_readers_get_their_own_rows_under_churn(processes: WorkloadRunner) -> None:
    for seconds, clears in CHURNS:
        churner = PutClearLoop(seconds, SHARED, clears=clears)
        other = Reader(SHARED) if clears else Clearer(SHARED, apart_s=APART_S)
        history = processes.run(churner, churner, other, Reader(SHARED))
        check_history(history, "churn", wrong_rows, unwritten, stale_reads, refused_alone, hung)


@requirement("CLEAR-07")
def test_clears_take_no_other_rows_with_them(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        churner = PutClearLoop(seconds, SHARED, clears=8)
        history = processes.run(churner, Clearer(SHARED), Claimer(), Claimer(reads=("x",)))
        rows = wrong_rows, unwritten, stale_reads
        check_history(history, "churn", lost, duplicated, phantoms, *rows, refused_alone, hung)


@requirement("GET-10")
def test_processes_see_a_put_as_soon_as_it_returns(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        producer = Producer(seconds, rows=1, reads_back=1)
        history = processes.run(*[producer] * 4)
        check_history(history, "read_after_claim", stale_reads, wrong_rows, refused, hung)


@requirement("PUT-13")
def test_rows_can_be_read_while_they_are_overwritten(processes: WorkloadRunner) -> None:
    ids = SHARED[:3]
    for seconds in run_lengths(SECONDS):
        writer = Overwriter(seconds, ids, ("x", "y"), ragged=True)
        history = processes.run(writer, *[Reader(ids, ("x", "y"), at_once=2)] * 2)
        check_history(history, "overwrite", wrong_rows, unwritten, stale_reads, refused, hung)


@requirement("PUT-22")
def test_processes_see_new_rows_as_a_whole(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        producer = Producer(seconds, rows=1, fields=FIELDS)  # slower than claims: no row lies long
        history = processes.run(producer, *[Claimer(batch=1, reads=FIELDS)] * 3)
        check_history(history, "read_after_claim", torn, stale_reads, wrong_rows, refused, hung)


@requirement("PUT-22")
def test_processes_see_an_overwrite_as_a_whole(processes: WorkloadRunner) -> None:
    ids = SHARED[:2]
    reader = Reader(ids, FIELDS)
    for seconds in run_lengths(SECONDS):
        history = processes.run(Overwriter(seconds, ids, FIELDS), reader, reader)
        check_history(history, "overwrite", torn, stale_reads, wrong_rows, refused, hung)


@requirement("REG-06")
def test_processes_bring_new_fields_while_others_claim(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        producer = Producer(seconds, rows=1, fresh_fields=True, reads_back=1)
        history = processes.run(producer, producer, producer, Claimer())
        check_history(history, "new_fields", refused, hung, stale_reads, wrong_rows)


@requirement("TAG-07")
def test_stamps_of_two_processes_all_stay(processes: WorkloadRunner) -> None:
    for part, seconds in enumerate(run_lengths(SECONDS)):
        ids = SHARED[3 * part : 3 * part + 3]  # rows that nobody has claimed yet
        processes.run(SinglePut(ids))
        history = processes.run(
            TagWriter(seconds, ids, "std"), TagWriter(seconds, ids, "reward"), Claimer(late=True)
        )
        check_history(history, "tag_writes", lost_updates, refused, hung)

"""Large calls of several processes at the same time.

A backend may divide a call of more than some hundred rows into several statements, messages or
locks, and then calls of other processes come between them.
"""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.calls import hung, refused, refused_alone
from rlconform.certify.concurrency.checkers.claims import duplicated, lost, null_ids, phantoms
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.checkers.status import early_status, late_status
from rlconform.certify.concurrency.checkers.tags import lost_updates, tags_late
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner
from rlconform.certify.concurrency.workloads import (
    Claimer,
    Producer,
    PutClearLoop,
    Reader,
    SinglePut,
    StatusPoller,
    TagWriter,
)
from rlconform.certify.plugin.markers import requirement

#: Time of the workloads that put, in seconds.
SECONDS = 0.4

#: Rows of a put, and of a claim or read: several times what a backend may take at once.
PUT, TAKEN = 1400, 1200

SHARED = tuple(f"r{n}" for n in range(2000))


@requirement("CLAIM-02")
def test_large_claims_of_two_processes_return_each_row_once(processes: WorkloadRunner) -> None:
    history = processes.run(Producer(SECONDS, rows=PUT), *[Claimer(batch=TAKEN)] * 2)
    check_history(history, "claims", duplicated, lost, phantoms, null_ids, refused, hung)


@requirement("TAG-04", leans_on=("TAG-01",))
def test_rows_of_a_large_put_are_claimed_with_their_tags(processes: WorkloadRunner) -> None:
    producer = Producer(SECONDS, rows=PUT, tagged=True)
    history = processes.run(producer, *[Claimer(batch=TAKEN)] * 2)
    check_history(history, "claims", tags_late, refused, hung)


@requirement("TAG-07")
def test_tags_that_two_processes_write_to_many_rows_are_all_kept(
    processes: WorkloadRunner,
) -> None:
    processes.run(SinglePut(SHARED[:PUT]))
    history = processes.run(
        TagWriter(SECONDS / 2, SHARED[:PUT], "std", rows=PUT),
        TagWriter(SECONDS / 2, SHARED[:PUT], "reward", rows=PUT),
        Claimer(late=True, batch=PUT),
    )
    check_history(history, "tag_writes", lost_updates, refused, hung)


@requirement("CLAIM-10")
def test_large_claims_that_race_clears_return_existing_rows(processes: WorkloadRunner) -> None:
    writer = PutClearLoop(SECONDS, SHARED, clears=600, shared=TAKEN)
    history = processes.run(writer, writer, Claimer(batch=TAKEN))
    check_history(history, "put_clear", null_ids, phantoms, refused_alone, hung)


@requirement("CLEAR-07")
def test_large_reads_return_the_rows_asked_for_while_ids_are_reused(
    processes: WorkloadRunner,
) -> None:
    writer = PutClearLoop(SECONDS, SHARED, clears=200, shared=TAKEN)
    history = processes.run(writer, writer, Reader(SHARED, at_once=TAKEN))
    check_history(history, "put_clear", wrong_rows, unwritten, stale_reads, refused_alone, hung)


@requirement("STAT-01")
def test_the_status_is_true_only_when_large_claims_have_taken_all(
    processes: WorkloadRunner,
) -> None:
    processes.run(Producer(SECONDS, rows=PUT), *[Claimer(batch=TAKEN)] * 2, StatusPoller())
    history = processes.run(StatusPoller())  # once all rows are claimed
    check_history(history, "status", early_status, late_status, refused, hung)

"""Processes that write the same rows at once: each adds to them, and undoes nobody's work."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.claims import duplicated, lost
from rlconform.certify.concurrency.checkers.errors import hung, refused
from rlconform.certify.concurrency.checkers.reads import stale_reads, wrong_rows
from rlconform.certify.concurrency.checkers.tags import lost_updates
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import (
    Appender,
    Claimer,
    Producer,
    SinglePut,
    TagWriter,
)
from rlconform.certify.plugin.markers import requirement

SECONDS = 1.5
#: A claim has to fall into the write that follows the row's first: in 1.5 s, 17 to 20 times of 20.
CLAIM_SECONDS = 2.5
IDS = ("r0", "r1", "r2", "r3", "r4", "r5")


@requirement("PUT-11")
def test_columns_that_two_processes_append_at_once_all_stay(processes: WorkloadRunner) -> None:
    processes.run(SinglePut(IDS[:3]))
    for seconds in run_lengths(SECONDS):
        appender = Appender(seconds, IDS[:3])
        history = processes.run(appender, appender)
        check_history(history, "write_back", stale_reads, wrong_rows, refused, hung)


@requirement("CLAIM-08")
def test_rows_that_are_written_to_while_they_are_claimed_come_once(
    processes: WorkloadRunner,
) -> None:
    for seconds in run_lengths(CLAIM_SECONDS):
        producer = Producer(seconds, rows=6, appends=("y",))
        history = processes.run(producer, Claimer(batch=1), Claimer(batch=1))
        check_history(history, "write_back", duplicated, lost, refused, hung)


@requirement("TAG-02")
def test_stamps_stay_while_another_process_writes_to_the_rows(processes: WorkloadRunner) -> None:
    # Each stamp has a key of its own, and all must stay: of several processes TAG-07 asks that too.
    for part, seconds in enumerate(run_lengths(SECONDS)):
        ids = IDS[3 * part : 3 * part + 3]  # rows that nobody has claimed yet
        processes.run(SinglePut(ids))
        writers = TagWriter(seconds, ids, "std"), Appender(seconds, ids)
        history = processes.run(*writers, Claimer(late=True))
        check_history(history, "write_back", lost_updates, refused, hung)

"""TAG: processes write tags while others claim rows or write to them."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.tags import lost_updates, tags_late
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import (
    LARGE_PUT,
    LARGE_S,
    LARGE_TAKE,
    Appender,
    Claimer,
    Producer,
    SinglePut,
    TagWriter,
)
from rlconform.certify.plugin.markers import requirement

SECONDS = 2.0
TAG_WRITE_SECONDS = 1.5

SHARED = tuple(f"r{n}" for n in range(24))


@requirement("TAG-02")
def test_tags_are_kept_while_another_process_writes_to_the_rows(processes: WorkloadRunner) -> None:
    # Each put writes a different tag key, and all keys must remain, also across processes (TAG-07).
    for part, seconds in enumerate(run_lengths(TAG_WRITE_SECONDS)):
        ids = SHARED[3 * part : 3 * part + 3]  # rows that are not claimed yet
        processes.run(SinglePut(ids))
        writers = TagWriter(seconds, ids, "std"), Appender(seconds, ids)
        history = processes.run(*writers, Claimer(late=True))
        check_history(history, "field_writes", lost_updates, refused, hung)


@requirement("TAG-04", leans_on=("TAG-01",))
def test_rows_are_claimed_with_the_tags_of_their_put(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        # one row per put: claims are faster and return each row immediately
        producer = Producer(seconds, rows=1, tagged=True)
        history = processes.run(producer, *[Claimer()] * 3)
        check_history(history, "claims", tags_late, refused, hung)


@requirement("TAG-07")
def test_tags_written_by_two_processes_are_all_kept(processes: WorkloadRunner) -> None:
    for part, seconds in enumerate(run_lengths(SECONDS)):
        ids = SHARED[3 * part : 3 * part + 3]  # rows that are not claimed yet
        processes.run(SinglePut(ids))
        history = processes.run(
            TagWriter(seconds, ids, "std"), TagWriter(seconds, ids, "reward"), Claimer(late=True)
        )
        check_history(history, "tag_writes", lost_updates, refused, hung)


@requirement("TAG-04", leans_on=("TAG-01",))
def test_rows_of_a_large_put_are_claimed_with_their_tags(processes: WorkloadRunner) -> None:
    claimer = Claimer(batch=LARGE_TAKE)
    history = processes.run(Producer(LARGE_S, rows=LARGE_PUT, tagged=True), claimer, claimer)
    check_history(history, "claims", tags_late, refused, hung)


@requirement("TAG-07")
def test_tags_that_two_processes_write_to_many_rows_are_all_kept(
    processes: WorkloadRunner,
) -> None:
    ids = tuple(f"r{n}" for n in range(LARGE_PUT))
    processes.run(SinglePut(ids))
    writers = [TagWriter(LARGE_S / 4, ids, name, rows=LARGE_PUT) for name in ("std", "reward")]
    history = processes.run(*writers, Claimer(late=True, batch=LARGE_PUT))
    check_history(history, "tag_writes", lost_updates, refused, hung)

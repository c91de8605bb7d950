"""STAT: processes check the consumption status while others put and claim."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.status import early_status, late_status, non_monotonic
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import (
    LARGE_PUT,
    LARGE_S,
    LARGE_TAKE,
    Claimer,
    Producer,
    StatusPoller,
)
from rlconform.certify.plugin.markers import requirement

SECONDS = 2.0


@requirement("STAT-01")
def test_the_status_is_true_only_when_all_was_claimed(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        processes.run(Producer(seconds, rows=2), Claimer(batch=1), Claimer(batch=1), StatusPoller())
        history = processes.run(StatusPoller())  # once all rows are claimed
        check_history(history, "status", early_status, late_status, refused, hung)


@requirement("STAT-02")
def test_processes_agree_on_the_status(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        # reads between the puts leave time in which the status stays the same
        producer = Producer(seconds, rows=1, reads_back=4)
        history = processes.run(producer, Claimer(), StatusPoller(), StatusPoller())
        check_history(history, "status", non_monotonic, refused, hung)


@requirement("STAT-01")
def test_the_status_is_true_only_when_large_claims_have_taken_all(
    processes: WorkloadRunner,
) -> None:
    claimer = Claimer(batch=LARGE_TAKE)
    processes.run(Producer(LARGE_S, rows=LARGE_PUT), claimer, claimer, StatusPoller())
    history = processes.run(StatusPoller())  # once all rows are claimed
    check_history(history, "status", early_status, late_status, refused, hung)

"""CLAIM: several processes claim at the same time, and each row is claimed exactly once."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.calls import hung, refused, refused_alone
from rlconform.certify.concurrency.checkers.claims import (
    cross_task,
    duplicated,
    lost,
    null_ids,
    phantoms,
)
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import (
    LARGE_PUT,
    LARGE_S,
    LARGE_TAKE,
    Claimer,
    Producer,
    PutClearLoop,
)
from rlconform.certify.plugin.markers import requirement

SECONDS = 2.0

#: A clear must happen between a claim and its look-up: 2 s are enough in 16 to 20 of 20 seeds.
CHURN_SECONDS = 4.0

#: A claim must happen during a row's second write: 1.5 s are enough in 17 to 20 of 20 seeds.
CLAIM_SECONDS = 2.5

TASKS = ("train", "prev_lp")

SHARED = tuple(f"r{n}" for n in range(24))


@requirement("CLAIM-02")
def test_processes_claim_every_row_once_for_each_task(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        history = processes.run(Producer(seconds), *[Claimer(TASKS)] * 3)
        check_history(
            history, "claims", duplicated, lost, cross_task, phantoms, null_ids, refused, hung
        )


@requirement("CLAIM-08")
def test_rows_written_to_during_their_claim_are_claimed_once(
    processes: WorkloadRunner,
) -> None:
    for seconds in run_lengths(CLAIM_SECONDS):
        producer = Producer(seconds, rows=6, appends=("y",))
        history = processes.run(producer, Claimer(batch=1), Claimer(batch=1))
        check_history(history, "field_writes", duplicated, lost, refused, hung)


@requirement("CLAIM-10")
def test_claims_that_race_clears_return_existing_rows(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(CHURN_SECONDS):
        writer = PutClearLoop(seconds, SHARED, clears=8)
        history = processes.run(writer, writer, Claimer(), Claimer())
        check_history(history, "put_clear", null_ids, phantoms, refused_alone, hung)


@requirement("CLAIM-02")
def test_large_claims_of_two_processes_return_each_row_once(processes: WorkloadRunner) -> None:
    claimer = Claimer(batch=LARGE_TAKE)
    history = processes.run(Producer(LARGE_S, rows=LARGE_PUT), claimer, claimer)
    check_history(history, "claims", duplicated, lost, phantoms, null_ids, refused, hung)


@requirement("CLAIM-10")
def test_large_claims_that_race_clears_return_existing_rows(processes: WorkloadRunner) -> None:
    ids = tuple(f"r{n}" for n in range(2 * LARGE_TAKE))
    writer = PutClearLoop(LARGE_S, ids, clears=LARGE_TAKE // 2, shared=LARGE_TAKE)
    history = processes.run(writer, writer, Claimer(batch=LARGE_TAKE))
    check_history(history, "put_clear", null_ids, phantoms, refused_alone, hung)

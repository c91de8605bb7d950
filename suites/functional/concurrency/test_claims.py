"""Claims by several processes at once: each row once, whatever else goes on."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.claims import (
    cross_task,
    duplicated,
    lost,
    null_ids,
    phantoms,
)
from rlconform.certify.concurrency.checkers.errors import hung, refused, refused_alone
from rlconform.certify.concurrency.checkers.tags import tags_late
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import Claimer, Producer, PutClearLoop, Registrar
from rlconform.certify.plugin.markers import requirement

SECONDS = 2.0
#: A clear has to fall between a claim and its look-up: in 2 s, 16 to 20 times of 20.
CHURN_SECONDS = 4.0
TASKS = ("train", "prev_lp")
SHARED = tuple(f"r{n}" for n in range(24))


@requirement("CLAIM-02")
def test_processes_claim_every_row_once_for_each_task(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        history = processes.run(Producer(seconds), *[Claimer(TASKS)] * 3)
        check_history(
            history, "claims", duplicated, lost, cross_task, phantoms, null_ids, refused, hung
        )


@requirement("CLAIM-10")
def test_claims_that_race_clears_name_rows_that_are_there(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(CHURN_SECONDS):
        churner = PutClearLoop(seconds, SHARED, clears=8)
        history = processes.run(churner, churner, Claimer(), Claimer())
        check_history(history, "churn", null_ids, phantoms, refused_alone, hung)


@requirement("TAG-04", leans_on=("TAG-01",))
def test_rows_are_claimed_with_the_tags_that_came_with_them(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        producer = Producer(seconds, rows=1, tagged=True)  # slower than claims: no row lies long
        history = processes.run(producer, *[Claimer()] * 3)
        check_history(history, "claims", tags_late, refused, hung)


@requirement("LIFE-08")
def test_registering_shows_nothing_to_processes_that_claim(processes: WorkloadRunner) -> None:
    fields = ("x", "y")
    for seconds in run_lengths(SECONDS):
        history = processes.run(
            Registrar(seconds, fields, TASKS),
            Producer(seconds, rows=1, fields=fields),
            Claimer(("train",), ("x",)),
            Claimer(("prev_lp",), ("y",)),
        )
        # What becomes of living rows as their partition is registered again, is the plane's choice.
        check_history(history, "register", phantoms, null_ids, refused, hung)

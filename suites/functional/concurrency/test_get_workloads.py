"""GET-10: processes read a row as soon as its put has returned."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.reads import stale_reads, wrong_rows
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import (
    Producer,
)
from rlconform.certify.plugin.markers import requirement

SECONDS = 2.0


@requirement("GET-10")
def test_processes_see_a_put_as_soon_as_it_returns(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        producer = Producer(seconds, rows=1, reads_back=1)
        history = processes.run(*[producer] * 4)
        check_history(history, "read_after_claim", stale_reads, wrong_rows, refused, hung)

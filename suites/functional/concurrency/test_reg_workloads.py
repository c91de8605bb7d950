"""REG-06: several processes put new fields while another one claims."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.reads import stale_reads, wrong_rows
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import (
    Claimer,
    Producer,
)
from rlconform.certify.plugin.markers import requirement

SECONDS = 2.0


@requirement("REG-06")
def test_processes_add_new_fields_while_others_claim(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        producer = Producer(seconds, rows=1, fresh_fields=True, reads_back=1)
        history = processes.run(producer, producer, producer, Claimer())
        check_history(history, "new_fields", refused, hung, stale_reads, wrong_rows)

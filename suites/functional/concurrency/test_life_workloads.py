"""LIFE: threads share an attached client; processes register the partition while others claim."""

from __future__ import annotations

import torch

from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.claims import (
    null_ids,
    phantoms,
)
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import (
    Claimer,
    Overwriter,
    Producer,
    Registrar,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest

SECONDS = 2.0
THREAD_SECONDS = 1.0

TASKS = ("train", "prev_lp")

DTYPES = (torch.uint8, torch.int64, torch.bfloat16, torch.float64)


@requirement("LIFE-05")
def test_threads_of_an_attached_process_share_its_client(
    attached_threads: WorkloadRunner, part: PartitionUnderTest
) -> None:
    part.register(fields=[str(dtype).removeprefix("torch.") for dtype in DTYPES])
    for seconds in run_lengths(THREAD_SECONDS):
        workloads = []
        for dtype in DTYPES:
            field = str(dtype).removeprefix("torch.")
            ids = tuple(f"{field}_{k}" for k in range(3))
            workloads.append(Overwriter(seconds, ids, (field,), ragged=True, dtypes={field: dtype}))
        history = attached_threads.run(*workloads, Claimer(fields=("int64",), idle_s=0.001))
        check_history(
            history, "shared_client", wrong_rows, unwritten, stale_reads, phantoms, refused, hung
        )


@requirement("LIFE-08")
def test_registering_makes_no_row_visible_to_other_processes(processes: WorkloadRunner) -> None:
    fields = ("x", "y")
    for seconds in run_lengths(SECONDS):
        history = processes.run(
            Registrar(seconds, fields, TASKS),
            Producer(seconds, rows=1, fields=fields),
            Claimer(("train",), ("x",)),
            Claimer(("prev_lp",), ("y",)),
        )
        # The plane decides whether existing rows survive a second registration.
        check_history(history, "registrations", phantoms, null_ids, refused, hung)

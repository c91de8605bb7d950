"""PUT: processes read rows while others put, overwrite and append to them."""

from __future__ import annotations

import pytest

from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.checkers.torn_reads import torn
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, run_lengths
from rlconform.certify.concurrency.workloads import (
    Appender,
    Claimer,
    Overwriter,
    Producer,
    Reader,
    SinglePut,
)
from rlconform.certify.plugin.markers import requirement

SECONDS = 2.0
APPEND_SECONDS = 1.5

SHARED = tuple(f"r{n}" for n in range(24))

FIELDS = ("x", "y", "z", "extra")

#: As many fields as a step with multimodal extras has: a backend may write them in several pieces.
MANY_FIELDS = tuple(f"f{n}" for n in range(16))


@requirement("PUT-11")
def test_columns_appended_by_two_processes_at_once_are_all_kept(processes: WorkloadRunner) -> None:
    processes.run(SinglePut(SHARED[:3]))
    for seconds in run_lengths(APPEND_SECONDS):
        appender = Appender(seconds, SHARED[:3])
        history = processes.run(appender, appender)
        check_history(history, "field_writes", stale_reads, wrong_rows, refused, hung)


@requirement("PUT-13")
def test_reads_during_overwrites_return_whole_versions(processes: WorkloadRunner) -> None:
    ids = SHARED[:3]
    for seconds in run_lengths(SECONDS):
        writer = Overwriter(seconds, ids, ("x", "y"), ragged=True)
        history = processes.run(writer, *[Reader(ids, ("x", "y"), at_once=2)] * 2)
        check_history(history, "overwrite", wrong_rows, unwritten, stale_reads, refused, hung)


@requirement("PUT-22")
def test_new_rows_become_visible_with_all_their_fields(processes: WorkloadRunner) -> None:
    for seconds in run_lengths(SECONDS):
        # one row per put: claims are faster and return each row immediately
        producer = Producer(seconds, rows=1, fields=FIELDS)
        history = processes.run(producer, *[Claimer(batch=1, reads=FIELDS)] * 3)
        check_history(history, "read_after_claim", torn, stale_reads, wrong_rows, refused, hung)


@requirement("PUT-22")
@pytest.mark.parametrize("fields", [FIELDS, MANY_FIELDS], ids=["4_fields", "16_fields"])
def test_an_overwrite_becomes_visible_in_all_fields_at_once(
    processes: WorkloadRunner, fields: tuple[str, ...]
) -> None:
    ids = SHARED[:2]
    reader = Reader(ids, fields)
    for seconds in run_lengths(SECONDS):
        history = processes.run(Overwriter(seconds, ids, fields), reader, reader)
        check_history(history, "overwrite", torn, stale_reads, wrong_rows, refused, hung)

"""PUT: processes read rows while others put, overwrite and append to them."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.errors import hung, refused
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.checkers.torn_reads import torn
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workload_runner import WorkloadRunner, in_parts
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


@requirement("PUT-11")
def test_columns_appended_by_two_processes_at_once_are_all_kept(stage: WorkloadRunner) -> None:
    stage.play(SinglePut(SHARED[:3]))
    for seconds in in_parts(APPEND_SECONDS):
        appender = Appender(seconds, SHARED[:3])
        history = stage.play(appender, appender)
        check_history(history, "write back", stale_reads, wrong_rows, refused, hung)


@requirement("PUT-13")
def test_reads_during_overwrites_return_whole_versions(stage: WorkloadRunner) -> None:
    ids = SHARED[:3]
    for seconds in in_parts(SECONDS):
        writer = Overwriter(seconds, ids, ("x", "y"), ragged=True)
        history = stage.play(writer, *[Reader(ids, ("x", "y"), at_once=2)] * 2)
        check_history(history, "overwrite", wrong_rows, unwritten, stale_reads, refused, hung)


@requirement("PUT-22")
def test_new_rows_become_visible_with_all_their_fields(stage: WorkloadRunner) -> None:
    for seconds in in_parts(SECONDS):
        producer = Producer(seconds, rows=1, fields=FIELDS)  # slower than claims: no row lies long
        history = stage.play(producer, *[Claimer(batch=1, reads=FIELDS)] * 3)
        check_history(history, "first sight", torn, stale_reads, wrong_rows, refused, hung)


@requirement("PUT-22")
def test_an_overwrite_becomes_visible_in_all_fields_at_once(stage: WorkloadRunner) -> None:
    ids = SHARED[:2]
    reader = Reader(ids, FIELDS)
    for seconds in in_parts(SECONDS):
        history = stage.play(Overwriter(seconds, ids, FIELDS), reader, reader)
        check_history(history, "overwrite", torn, stale_reads, wrong_rows, refused, hung)

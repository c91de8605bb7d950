"""LOAD-01 and LOAD-03: many rows, many calls, and what grows with them."""

from __future__ import annotations

import time

from rlconform.certify.assertions.expect import expect
from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.claims import duplicated, lost, null_ids, phantoms
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.checkers.torn_reads import torn
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.workloads import Claimer
from rlconform.certify.durability.callers import EndlessProducer
from rlconform.certify.durability.cost_growth import lower_quartile, slower
from rlconform.certify.durability.fault_run import FaultRun
from rlconform.certify.durability.fault_verdict import Indeterminate
from rlconform.certify.durability.moments import has_made
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids

#: LOAD-01: producers, consumers, seconds and the fewest rows that count as load.
PRODUCERS, CONSUMERS, LEAST_ROWS = 3, 3, 500
#: LOAD-01: seconds of a short run, which finds most defects, and of a long one.
RUNS_S = (1.5, 10.5)
#: LOAD-03: rounds, rows of each, and the rounds that are compared.
ROUNDS, ROWS, COMPARED = 240, 32, 24
#: LOAD-03: how many times the first claims the last ones may cost, and seconds more.
TIMES, EXTRA_S = 3.0, 0.002


@requirement("LOAD-01", patience=300)
def test_each_row_is_delivered_once_under_load(faults: FaultRun) -> None:
    fields = ("x", "y")
    producer = EndlessProducer(rows=16, fields=fields, width=1 << 11, pause_s=0.0)
    consumer = Claimer(fields=fields, batch=32, reads=fields, idle_s=0.005)
    rows = 0
    for seconds in RUNS_S:
        callers = faults.start(*[producer] * PRODUCERS, *[consumer] * CONSUMERS)
        faults.until(has_made(1), *callers)
        faults.last(seconds)
        history = faults.finish()
        checkers = (null_ids, duplicated, phantoms, wrong_rows, unwritten, stale_reads, torn, lost)
        check_history(history, "", *checkers, refused, hung)
        rows = sum(len(op.ids) for op in history.of("put"))
    if rows < LEAST_ROWS:
        expected = f"{LEAST_ROWS} expected"
        raise Indeterminate(
            f"indeterminate: {rows} rows in {sum(RUNS_S):g} s are no load ({expected})"
        )


@requirement("LOAD-03", patience=300)
def test_a_claim_costs_the_same_after_many_rows(part: PartitionUnderTest) -> None:
    """Of the rows that are claimed, half are cleared and half stay."""
    took: list[float] = []
    for number in part.rounds(ROUNDS):
        ids = [f"r{number}_{row}" for row in range(ROWS)]
        part.put_labeled(ids)
        start = time.monotonic()
        meta = part.claim(batch_size=ROWS)
        took.append(time.monotonic() - start)
        expect_ids(meta, ids, "rows of the round")
        part.clear(ids[::2])
    if len(took) < 3 * COMPARED:
        raise Indeterminate(f"indeterminate: time for {len(took)} of {ROUNDS} rounds only")
    first, last = took[:COMPARED], took[-COMPARED:]
    before, after = lower_quartile(first), lower_quartile(last)
    expect(
        not slower(first, last, TIMES, EXTRA_S),
        f"a claim to cost about the same after {len(took) * ROWS} rows as at first, "
        f"{1000 * before:.1f} ms",
        f"{1000 * after:.1f} ms",
    )

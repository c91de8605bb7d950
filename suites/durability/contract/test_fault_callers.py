"""FAULT-01 and FAULT-04: producers and consumers are killed in the middle of their work."""

from __future__ import annotations

from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.claims import duplicated, lost, null_ids, phantoms
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.checkers.torn_reads import torn
from rlconform.certify.concurrency.workloads import Claimer
from rlconform.certify.durability.callers import EndlessProducer, PutAgain, ReadEach
from rlconform.certify.durability.fault_run import FaultRun
from rlconform.certify.durability.fault_verdict import expect_durable, judge_faults
from rlconform.certify.durability.moments import after_claiming, during, has_made
from rlconform.certify.durability.nemeses import Kill
from rlconform.certify.plugin.markers import requirement

FIELDS = ("x", "y", "z")
#: Bytes of a value of a row, so that a put is long enough to be interrupted.
WIDTH = 1 << 14
#: Calls that each survivor makes after the last fault.
AFTER = 8
READS = (wrong_rows, unwritten, stale_reads)
CLAIMS = (null_ids, duplicated, phantoms, lost)


@requirement("FAULT-01", patience=240)
def test_rows_of_killed_producers_are_whole_or_absent(faults: FaultRun) -> None:
    producer = EndlessProducer(rows=8, fields=FIELDS, width=WIDTH)
    *victims, staying, consumer = faults.start(
        producer, producer, producer, producer, Claimer(reads=FIELDS, idle_s=0.01)
    )
    for number, victim in enumerate(victims):
        share = number / len(victims)  # some die early in the put, others late
        faults.strike_at(victim, during("put", after=3), Kill(), "producer", into=share)
    last = faults.faults[-1].end
    faults.until(has_made(AFTER, since=last), staying, consumer)
    cut_off = [i for victim in victims for i in victim.journal.poll()[-1].ids]
    faults.run(ReadEach(tuple(cut_off), FIELDS))
    faults.run(PutAgain(tuple(cut_off), FIELDS))
    history = faults.finish()
    checkers = (hung, refused, *READS, torn, *CLAIMS)
    verdict = judge_faults(history, faults.faults, faults.survivors(), checkers)
    expect_durable(verdict, history)


@requirement("FAULT-04", patience=240)
def test_a_killed_consumer_loses_only_its_own_claim(faults: FaultRun) -> None:
    consumer = Claimer(reads=("x",), idle_s=0.01)
    producers = faults.start(*[EndlessProducer(rows=6)] * 2)
    faults.until(has_made(AFTER), *producers)  # so that claims find as many rows as they ask for
    after_claim, in_claim, staying, other = faults.start(*[consumer] * 4)
    faults.strike_at(after_claim, after_claiming(1), Kill(), "consumer")
    faults.strike_at(in_claim, during("claim", after=3), Kill(), "consumer")
    last = faults.faults[-1].end
    faults.until(has_made(AFTER, since=last), *producers, staying, other)
    history = faults.finish()
    checkers = (hung, refused, *CLAIMS, *READS)
    verdict = judge_faults(history, faults.faults, faults.survivors(), checkers)
    expect_durable(verdict, history)

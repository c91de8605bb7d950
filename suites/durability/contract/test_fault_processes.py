"""FAULT-02, 03, 05 and 06: the plane's own processes are killed, stopped, slowed and cut off."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import pytest

from rlconform.certify.assertions.expect import ShouldViolation
from rlconform.certify.concurrency.checkers.calls import hung, refused
from rlconform.certify.concurrency.checkers.claims import duplicated, lost, null_ids, phantoms
from rlconform.certify.concurrency.checkers.faults import (
    among_answers,
    blind_clears,
    late,
    malformed,
    never_well,
    unkept,
    untyped_errors,
)
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.checkers.torn_reads import torn
from rlconform.certify.concurrency.explain import operation_line
from rlconform.certify.concurrency.operation import Op
from rlconform.certify.concurrency.workloads import Claimer
from rlconform.certify.durability.callers import (
    AllCalls,
    EndlessProducer,
    SlowConsumer,
    WaitingClaims,
)
from rlconform.certify.durability.fault_run import FaultRun
from rlconform.certify.durability.fault_verdict import expect_durable, judge_faults
from rlconform.certify.durability.moments import during, has_made, has_made_each
from rlconform.certify.durability.nemeses import (
    CloseConnections,
    Kill,
    Slow,
    Stop,
    why_not_close_connections,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.contract import PlaneControl, Target

Control = Callable[[], PlaneControl]

#: Every kind of call that must come back after a process was lost.
KINDS: tuple[Op, ...] = ("put", "get", "claim", "status", "clear")
#: Calls that each caller makes before the first fault, and after the last one.
BEFORE, AFTER = 10, 12
ROWS = (wrong_rows, malformed, unwritten, among_answers(torn))
KEPT = (among_answers(stale_reads), lost)
CLAIMS = (null_ids, duplicated, phantoms)


def kill(faults: FaultRun, role: str, pids: Sequence[int], operation_s: float) -> None:
    """Kill the first of the plane's processes under load, and judge every call that follows."""
    callers = [*faults.start(AllCalls(), AllCalls()), faults.start_here(AllCalls())]
    (waiting,) = faults.start(WaitingClaims())
    faults.until(has_made(BEFORE), *callers)
    fault, *_ = faults.strike(role, pids[0], Kill())
    faults.until(has_made_each(KINDS, since=fault.end), *callers)
    faults.until(has_made(1, since=fault.end), waiting)
    history = faults.finish()
    blind = (unkept(fault.end), blind_clears(fault.end))
    checkers = (hung, late(operation_s), *ROWS, *CLAIMS, *blind)
    expect_durable(judge_faults(history, faults.faults, faults.survivors(), checkers), history)
    for op in untyped_errors(history, fault.start)[:1]:
        due = "a ConnectionError, TimeoutError, OSError or DataPlaneError after a process was lost"
        text = f"expected {due}; got {operation_line(op, op.start, None)}"
        warnings.warn(text, ShouldViolation, stacklevel=1)


@requirement("FAULT-02", ends_plane=True, patience=300)
def test_a_killed_storage_process_is_an_error_in_time(
    faults: FaultRun, control: Control, target: Target
) -> None:
    kill(faults, "storage process", control().storage_pids(), target.timeouts.operation)


@requirement("FAULT-03", ends_plane=True, patience=300)
def test_a_killed_controller_is_an_error_in_time(
    faults: FaultRun, control: Control, target: Target
) -> None:
    kill(faults, "controller", control().controller_pids(), target.timeouts.operation)


def pause_s(target: Target) -> float:
    """Return how long a process is stopped: longer than a heartbeat, shorter than a deadline."""
    return min(target.timeouts.operation / 2, 6.0)


@requirement("FAULT-05", patience=300)
@pytest.mark.parametrize("role", ["consumer", "producer"])
def test_a_stopped_caller_disturbs_no_other(faults: FaultRun, target: Target, role: str) -> None:
    consumer = SlowConsumer(fields=("x", "y"))
    producer = EndlessProducer(fields=("x", "y"))
    callers = faults.start(producer, producer, consumer, consumer)
    faults.until(has_made(BEFORE), *callers)
    victim, kind = (callers[0], "put") if role == "producer" else (callers[2], "claim")
    for nemesis in (Stop(pause_s(target)), Slow(pause_s(target) / 2)):
        fault = faults.strike_at(victim, during(kind), nemesis, role)
        faults.until(has_made(AFTER, since=fault.end, well=True), *callers)
    history = faults.finish()
    checkers = (hung, *ROWS, stale_reads, *CLAIMS, lost, refused)
    expect_durable(judge_faults(history, faults.faults, faults.survivors(), checkers), history)


@requirement("FAULT-05", patience=300)
@pytest.mark.parametrize("role", ["storage process", "controller"])
def test_a_stopped_process_of_the_plane_loses_nothing(
    faults: FaultRun, target: Target, role: str, request: pytest.FixtureRequest
) -> None:
    if target.declares("control") is not True:
        pytest.skip(f"the target declares no control, with which the {role} is found")
    control: Control = request.getfixturevalue("control")
    pids = control().storage_pids() if role == "storage process" else control().controller_pids()
    callers = [
        *faults.start(EndlessProducer(), SlowConsumer(), AllCalls()),
        faults.start_here(EndlessProducer()),
    ]
    faults.until(has_made(BEFORE), *callers)
    for nemesis in (Stop(pause_s(target)), Slow(pause_s(target) / 2)):
        fault, *_ = faults.strike(role, pids[0], nemesis)
        faults.until(has_made(AFTER, since=fault.end, well=True), *callers)
    history = faults.finish()
    deadlines = (hung, late(target.timeouts.operation), never_well(faults.faults[-1].end))
    checkers = (*deadlines, *ROWS, *CLAIMS, *KEPT)
    expect_durable(judge_faults(history, faults.faults, faults.survivors(), checkers), history)


@requirement("FAULT-06", patience=300)
@pytest.mark.parametrize("role", ["storage process", "controller"])
def test_a_broken_connection_is_made_again(
    faults: FaultRun, control: Control, target: Target, role: str
) -> None:
    if why := why_not_close_connections():
        pytest.skip(why)
    pids = control().storage_pids() if role == "storage process" else control().controller_pids()
    callers = faults.start(
        EndlessProducer(), EndlessProducer(), Claimer(reads=("x",), idle_s=0.01), AllCalls()
    )
    faults.until(has_made(BEFORE), *callers)
    fault, *_ = faults.strike(role, pids[0], CloseConnections(1.0))
    faults.until(has_made(AFTER, since=fault.end, well=True), *callers)
    history = faults.finish()
    deadlines = (hung, late(target.timeouts.operation), never_well(faults.faults[-1].end))
    checkers = (*deadlines, *ROWS, *CLAIMS, *KEPT)
    expect_durable(judge_faults(history, faults.faults, faults.survivors(), checkers), history)

"""Sides that wait for each other, pauses after a sync, names that come again: on small logs."""

from __future__ import annotations

import pytest

from rlconform.check_run.verdict import RuleOutcome
from rlconform.events.schema import (
    DropCause,
    Dropped,
    Idle,
    IdleCause,
    PlaneOp,
    PromptDispatched,
    RolloutStarted,
    Selected,
    WeightsApplied,
    WeightsPublished,
)

from .log_builder import engine_source
from .small_log import ENGINE, Log, small_log

OTHER = engine_source(1)


def idle(log: Log, who: str, seconds: float, cause: IdleCause) -> None:
    log.write(Idle(who=who, seconds=seconds, cause=cause))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cause", "outcome"),
    [
        (IdleCause.GATE, RuleOutcome.FAIL),
        (IdleCause.BUFFER_FULL, RuleOutcome.FAIL),
        (IdleCause.ALL_DISPATCHED, RuleOutcome.FAIL),
        (IdleCause.BACKOFF, RuleOutcome.PASS),
        (IdleCause.WEIGHT_SYNC, RuleOutcome.PASS),
    ],
)
def test_sides_that_wait_for_each_other_are_found(cause: IdleCause, outcome: RuleOutcome) -> None:
    log = small_log()
    log.passes(20)
    idle(log, "trainer", 20, IdleCause.NO_READY_GROUPS)
    idle(log, "generation", 20, cause)
    log.finish()
    assert log.verdict("liveness").outcome is outcome


def test_sides_that_wait_one_after_the_other_are_right() -> None:
    log = small_log()
    log.passes(5)
    idle(log, "generation", 5, IdleCause.GATE)
    log.passes(5)
    idle(log, "trainer", 5, IdleCause.NO_READY_GROUPS)
    log.finish()
    assert log.verdict("liveness").outcome is RuleOutcome.PASS


@pytest.mark.parametrize("running", [False, True])
def test_a_trainer_for_which_nothing_is_generated_is_found(running: bool) -> None:
    """The deadline of a rollout is 10 seconds."""
    log = small_log()
    log.write(PromptDispatched(group_id="b", prompt_id="p-b"))
    if running:
        log.write(RolloutStarted(group_id="b", row=0, weight_version=0, engine="e"), ENGINE)
    log.passes(15)
    idle(log, "trainer", 15, IdleCause.NO_READY_GROUPS)
    log.write(Dropped(group_id="b", cause=DropCause.SHUTDOWN))
    log.finish()
    verdict = log.verdict("liveness")
    assert verdict.outcome is (RuleOutcome.PASS if running else RuleOutcome.FAIL)
    assert running or "and no cause" in verdict.anomalies[0].sentence


@pytest.mark.parametrize(
    ("late", "outcome"), [(0, RuleOutcome.PASS), (25, RuleOutcome.PASS), (40, RuleOutcome.FAIL)]
)
def test_a_pause_after_the_end_of_its_sync_is_found(late: float, outcome: RuleOutcome) -> None:
    log = small_log()
    log.write(WeightsApplied(version=0, engine="other"), OTHER)
    log.write(WeightsPublished(version=1))
    log.passes(40)
    log.write(WeightsApplied(version=1, engine="e"), ENGINE)
    log.write(WeightsApplied(version=1, engine="other"), OTHER)
    log.passes(late)
    idle(log, "generation", 40 + late, IdleCause.WEIGHT_SYNC)
    log.finish()
    assert log.verdict("liveness").outcome is outcome


def test_a_pause_until_the_last_engine_has_the_weights_is_right() -> None:
    log = small_log()
    log.write(WeightsApplied(version=0, engine="other"), OTHER)
    log.write(WeightsPublished(version=1))
    log.write(WeightsApplied(version=1, engine="e"), ENGINE)
    log.passes(90)
    log.write(WeightsApplied(version=1, engine="other"), OTHER)
    idle(log, "generation", 90, IdleCause.WEIGHT_SYNC)
    log.finish()
    assert log.verdict("liveness").outcome is RuleOutcome.PASS


@pytest.mark.parametrize(
    ("attempt", "outcome"), [(0, RuleOutcome.FAIL), (1, RuleOutcome.PASS)], ids=["same", "higher"]
)
def test_a_dropped_group_comes_again_as_a_higher_attempt(
    attempt: int, outcome: RuleOutcome
) -> None:
    log = small_log()
    for number in (0, attempt):
        log.write(PromptDispatched(group_id="b", prompt_id="p-b", attempt=number))
        log.write(Dropped(group_id="b", cause=DropCause.INFRA_FAILURE))
    log.finish()
    assert log.verdict("exactly_once").outcome is outcome


def test_a_trained_group_that_a_step_takes_again_is_found() -> None:
    log = small_log()
    log.write(Selected(group_id="a", step=2, version=1))
    log.finish()
    (anomaly,) = log.verdict("exactly_once").anomalies
    assert "selected after it was trained on" in anomaly.sentence


@pytest.mark.parametrize("published", [True, False])
def test_a_dispatch_at_a_version_that_nobody_has_is_found(published: bool) -> None:
    log = small_log()
    if published:
        log.write(WeightsPublished(version=1))
    log.write(PromptDispatched(group_id="c", prompt_id="p-c", version=1))
    sentences = [one.sentence for one in log.verdict("versions").anomalies]
    found = [
        "expected c to be dispatched at version 0 at most, as no later one is published; got 1"
    ]
    assert sentences == ([] if published else found)


def test_a_get_that_also_asks_for_a_cleared_key_says_nothing_of_the_others() -> None:
    log = small_log()
    for number, (op, keys) in enumerate((("put", ["a", "b"]), ("clear", ["a"]))):
        log.write(PlaneOp(op=op, op_id=number, status="invoked", keys=keys))  # type: ignore[arg-type]
        log.write(PlaneOp(op=op, op_id=number, status="ok"))  # type: ignore[arg-type]
    log.write(PlaneOp(op="get", op_id=9, status="invoked", keys=["a", "b"]))
    log.write(PlaneOp(op="get", op_id=9, status="failed", error="not_found"))
    log.finish()
    assert log.verdict("plane_ops").outcome is RuleOutcome.PASS

"""The rules on small logs with restarts, and with calls of a data plane."""

from __future__ import annotations

from typing import Any

import pytest

from rlconform.check_run.judge import judge_records
from rlconform.check_run.verdict import RuleOutcome
from rlconform.events.schema import (
    CheckpointSaved,
    PlaneOp,
    ProcessLost,
    PromptDispatched,
    Record,
    Resumed,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    Trained,
)

from .log_builder import DRIVER
from .small_log import DECLARED, ENGINE, Log, small_log


def test_what_is_trained_after_the_checkpoint_may_be_trained_again() -> None:
    log = small_log()
    log.write(CheckpointSaved(step=1))
    log.generate("b")
    log.train("b", 2, 1)
    log.write(Resumed(step=1))
    log.apply(1)
    log.generate("b", 1)
    log.train("b", 2, 1)
    log.finish()
    for rule in ("exactly_once", "resume", "versions", "accounting"):
        assert log.verdict(rule).outcome is RuleOutcome.PASS


def test_a_run_that_crashes_before_its_first_checkpoint_may_begin_again() -> None:
    log = small_log()
    log.write(RunStarted(**DECLARED))
    log.write(Resumed(step=0))
    log.apply(0)
    log.generate("a")
    log.train("a", 1, 0)
    log.finish()
    outcomes = {v.outcome for v in judge_records(log.records).verdicts}
    assert outcomes == {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}


def test_tokens_of_weights_that_the_trainer_does_not_have_are_found() -> None:
    log = Log()
    log.apply(1)
    log.generate("a", 1)
    log.train("a", 1, 0)
    log.finish()
    (anomaly,) = log.verdict("staleness").anomalies
    assert "newer than the trainer's 0; got version 1" in anomaly.sentence


def test_what_is_trained_before_the_checkpoint_may_not() -> None:
    log = small_log()
    log.write(CheckpointSaved(step=1))
    log.write(Resumed(step=1))
    log.apply(1)
    log.generate("a", 1)
    log.train("a", 2, 1)
    log.finish()
    (anomaly, *_) = log.verdict("exactly_once").anomalies
    assert isinstance(anomaly.proof[0], Record)
    assert anomaly.proof[0].event == Trained(group_id="a", rows=[0], step=1, version=0)


def test_a_resume_without_its_checkpoint_is_undecided() -> None:
    log = small_log()
    log.write(Resumed(step=7))
    log.finish()
    verdict = log.verdict("resume")
    assert verdict.outcome is RuleOutcome.INDETERMINATE
    assert "step 7" in verdict.missing[0]


def test_a_process_that_is_lost_may_have_its_group_dispatched_again() -> None:
    log = Log()
    log.write(PromptDispatched(group_id="a", prompt_id="p"))
    log.write(RolloutStarted(group_id="a", row=0, weight_version=0, engine="e"), ENGINE)
    log.write(ProcessLost(lost=ENGINE))
    log.write(PromptDispatched(group_id="a", prompt_id="p", attempt=1))
    log.write(RolloutStarted(group_id="a", row=0, attempt=1, weight_version=0), DRIVER)
    log.write(RolloutFinished(group_id="a", row=0, attempt=1), DRIVER)
    log.train("a", 1, 0)
    log.finish()
    assert log.verdict("accounting").outcome is RuleOutcome.PASS


def call(
    log: Log, op: Any, number: int, keys: list[str], status: Any = "ok", **fields: Any
) -> None:
    log.write(PlaneOp(op=op, op_id=number, status="invoked", keys=keys))
    returned = keys if op in {"get", "claim"} and status == "ok" else None
    log.write(PlaneOp(op=op, op_id=number, status=status, keys=returned, **fields))


@pytest.mark.parametrize(
    ("before", "outcome"),
    [
        ([("put", "ok")], RuleOutcome.FAIL),
        ([("put", "unknown")], RuleOutcome.PASS),
        ([("put", "failed")], RuleOutcome.PASS),
        ([("put", "ok"), ("clear", "ok")], RuleOutcome.PASS),
        ([("put", "ok"), ("clear", "unknown")], RuleOutcome.PASS),
        ([("put", "ok"), ("clear", "ok"), ("put", "ok")], RuleOutcome.FAIL),
    ],
)
def test_a_get_finds_what_was_acknowledged(
    before: list[tuple[str, str]], outcome: RuleOutcome
) -> None:
    log = small_log()
    for number, (op, status) in enumerate(before):
        call(log, op, number, ["k"], status)
    call(log, "get", 9, ["k"], "failed", error="not_found")
    log.finish()
    assert log.verdict("plane_ops").outcome is outcome


def test_calls_at_the_same_time_may_go_either_way() -> None:
    """A get between a put's invocation and its end may find the key or not."""
    log = small_log()
    call(log, "put", 0, ["k"])
    call(log, "clear", 1, ["k"])
    log.write(PlaneOp(op="put", op_id=2, status="invoked", keys=["k"]))
    call(log, "get", 3, ["k"])
    call(log, "get", 4, ["k"], "failed", error="not_found")
    log.write(PlaneOp(op="put", op_id=2, status="ok"))
    log.finish()
    assert log.verdict("plane_ops").outcome is RuleOutcome.PASS

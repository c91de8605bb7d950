"""What ``run_started`` declares about the log: what it leaves out, split groups, the last step."""

from __future__ import annotations

from typing import Any

import pytest

from rlconform.check_run.judge import judge_records
from rlconform.check_run.verdict import RuleOutcome
from rlconform.events.schema import (
    Committed,
    EventSource,
    ProcessLost,
    PromptDispatched,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    Trained,
    Unlogged,
    WeightsApplied,
    WeightsPublished,
)

from .small_log import ENGINE, Log, small_log


@pytest.mark.parametrize(
    ("unlogged", "rules"),
    [
        ("dropped", {"accounting", "after_end", "liveness", "bias"}),
        ("cleared", {"after_end"}),
        ("checkpoint_saved", {"resume"}),
        ("rollout_finished", {"bias"}),
    ],
)
def test_what_the_run_does_not_write_leaves_rules_undecided(unlogged: str, rules: set[str]) -> None:
    log = small_log(unlogged=[Unlogged(unlogged)])
    log.finish()
    verdicts = judge_records(log.records).verdicts
    undecided = {v.rule: v.missing for v in verdicts if v.outcome is RuleOutcome.INDETERMINATE}
    assert undecided == dict.fromkeys(rules, (f"{unlogged}, which the run does not write",))


@pytest.mark.parametrize("split", [False, True])
def test_groups_are_split_over_steps_only_if_that_is_declared(split: bool) -> None:
    log = Log(group_size=2, split_groups=split)
    log.write(PromptDispatched(group_id="a", prompt_id="p"))
    for row in (0, 1):
        where: dict[str, Any] = {"group_id": "a", "row": row}
        log.write(RolloutStarted(**where, weight_version=0, engine="e"), ENGINE)
        log.write(RolloutFinished(**where), ENGINE)
    log.write(Committed(group_id="a", rows=[0, 1]))
    for row in (0, 1):
        log.write(Trained(group_id="a", rows=[row], step=row + 1, version=row))
    log.finish()
    outcome = RuleOutcome.PASS if split else RuleOutcome.FAIL
    assert log.verdict("group_integrity").outcome is outcome


@pytest.mark.parametrize(("steps", "found"), [(None, False), (1, False), (2, True)])
def test_a_completed_run_has_made_the_steps_that_it_declares(
    steps: int | None, found: bool
) -> None:
    log = small_log(steps=steps)
    log.finish()
    sentences = [anomaly.sentence for anomaly in log.verdict("accounting").anomalies]
    said = "expected the run to make 2 steps before it was completed; got 1"
    assert sentences == [said] * found


def test_a_step_too_many_is_found_and_a_cancelled_run_is_not_held_to_its_steps() -> None:
    log = small_log(steps=1)
    log.generate("b", step=2, version=0)
    log.train("b", 2, 0)
    log.finish()
    (found,) = log.verdict("accounting").anomalies
    assert found.sentence == "expected the run to make 1 steps before it was completed; got 2"
    cancelled = small_log(steps=5, final_sync=True)
    cancelled.write(RunFinished(reason="cancelled"))
    for rule in ("accounting", "versions"):
        assert cancelled.verdict(rule).outcome is RuleOutcome.PASS


def synced(
    log: Log, *, published: bool = True, applied: bool = True, reported: bool = False
) -> Log:
    """A log whose last step made version 1, with a second engine that began with version 0."""
    second = EventSource("rollout", 9, "host-a", 999)
    log.write(WeightsApplied(version=0, engine="other"), second)
    if published:
        log.write(WeightsPublished(version=1))
        log.apply(1)
    if applied:
        log.write(WeightsApplied(version=1, engine="other"), second)
    if reported:
        log.write(ProcessLost(lost=second))
    log.finish()
    return log


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, ""),
        ({"published": False, "applied": False}, "to be published before the run was completed"),
        ({"applied": False}, "expected other to have version 1, which the last step made"),
        ({"applied": False, "reported": True}, ""),
    ],
)
def test_the_engines_have_the_last_weights_only_if_that_is_declared(
    how: dict[str, bool], said: str
) -> None:
    found = synced(small_log(final_sync=True), **how).verdict("versions").anomalies
    assert [said in anomaly.sentence for anomaly in found] == [True] * bool(said)
    assert synced(small_log(), **how).verdict("versions").outcome is RuleOutcome.PASS

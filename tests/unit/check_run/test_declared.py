"""What ``run_started`` declares about the log: types that it leaves out, and split groups."""

from __future__ import annotations

from typing import Any

import pytest

from rlconform.check_run.judge import judge_records
from rlconform.check_run.verdict import RuleOutcome
from rlconform.events.schema import (
    Committed,
    PromptDispatched,
    RolloutFinished,
    RolloutStarted,
    Trained,
    Unlogged,
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

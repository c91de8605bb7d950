"""Asynchronous runs on a simulated clock write events that ``check-run`` finds nothing in."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.verdict import RuleOutcome
from rlconform.grpo.simulation.scenario import Scenario, clean_scenarios

SCENARIOS = clean_scenarios()


def not_clean(report: RunReport, *, undecided: bool = True) -> list[str]:
    """What keeps a rule from passing, one line each; with or without what the log lacks."""
    allowed = {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}
    return [
        f"{verdict.rule}: {line}"
        for verdict in report.verdicts
        if verdict.outcome not in allowed
        for line in (*(one.sentence for one in verdict.anomalies), *(verdict.missing * undecided))
    ]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_the_log_of_every_run_is_clean(scenario: Scenario, tmp_path: Path) -> None:
    scenario.run(tmp_path)
    report = judge_run([tmp_path])
    assert not_clean(report) == []
    assert report.overview.fates["trained"] == scenario.prompts * scenario.steps

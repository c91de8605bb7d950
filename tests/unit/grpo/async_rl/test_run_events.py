"""Asynchronous runs on a simulated clock write events that ``check-run`` finds nothing in."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlconform.check_run.judge import judge_run
from rlconform.grpo.simulation.scenario import Scenario, clean_scenarios

SCENARIOS = clean_scenarios()


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_the_log_of_every_run_is_clean(scenario: Scenario, tmp_path: Path) -> None:
    scenario.run(tmp_path)
    report = judge_run([tmp_path])
    assert report.not_clean() == []
    assert report.overview.fates["trained"] == scenario.prompts * scenario.steps

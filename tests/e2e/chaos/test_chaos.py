"""A fault in every kind of process, on two planes: the run goes on, or ends with a typed error."""

from __future__ import annotations

from pathlib import Path

import pytest

from .chaos_run import START_S, run_chaos
from .scenarios import PLANES, SCENARIOS, Scenario
from .verdict import complaints

CASES = [
    pytest.param(each, id=each.name, marks=[pytest.mark.smoke] if each.smoke else [])
    for each in SCENARIOS
]


@pytest.mark.timeout(2 * (START_S + max(each.deadline_s for each in SCENARIOS)))
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("scenario", CASES)
def test_a_run_goes_on_or_ends_with_a_typed_error(
    scenario: Scenario, plane: str, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    seen = run_chaos(scenario, plane, tmp_path)
    record_property("ended", f"{seen.exit_code} {seen.error or seen.ended} {seen.seconds:.1f} s")
    assert complaints(seen, scenario.ending) == []

"""All rules pass on right runs; one defect is found by its rule, with a proof of ten events."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rlconform.check_run.anomaly import LONGEST_PROOF
from rlconform.check_run.judge import RunReport, judge_records
from rlconform.check_run.rules import ALL_RULES
from rlconform.check_run.verdict import RuleOutcome
from rlconform.events.schema import Record

from .framework_model import right_run
from .log_builder import lines_of, records_of_lines
from .planted import DEFECTS, Defect
from .scenario import Scenario
from .strategies import scenarios

GOOD = {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}


def outcomes(report: RunReport) -> dict[str, RuleOutcome]:
    return {verdict.rule: verdict.outcome for verdict in report.verdicts}


@settings(max_examples=150)
@given(scenarios)
def test_all_rules_pass_on_right_runs(scenario: Scenario) -> None:
    report = judge_records(right_run(scenario))
    wrong = [v for v in report.verdicts if v.outcome not in GOOD]
    assert not wrong, [(v.rule, v.missing, [a.sentence for a in v.anomalies]) for v in wrong]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(scenario=scenarios, seed=st.integers(0, 100))
def test_a_planted_defect_is_found(defect: Defect, scenario: Scenario, seed: int) -> None:
    lines = defect.plant(lines_of(right_run(scenario)), Random(seed))
    assume(lines is not None)
    report = judge_records(records_of_lines(lines or []))
    verdict = next(v for v in report.verdicts if v.rule == defect.rule)
    assert verdict.outcome is RuleOutcome.FAIL, outcomes(report)
    for anomaly in verdict.anomalies:
        assert 1 <= len(anomaly.proof) <= LONGEST_PROOF
        assert all(isinstance(one, Record) for one in anomaly.proof)
        clocks = [one.clock for one in anomaly.proof if isinstance(one, Record)]
        assert clocks == sorted(clocks)
        assert anomaly.sentence.startswith("expected ")
        assert "; got " in anomaly.sentence


def test_every_rule_that_finds_anomalies_has_planted_defects() -> None:
    without = {"completeness", "bias"}  # the first finds none; see test_small_logs for the other
    assert {defect.rule for defect in DEFECTS} == {rule.name for rule in ALL_RULES} - without
    assert len(DEFECTS) >= 30


def test_the_model_has_what_the_rules_judge() -> None:
    """Otherwise, right runs could pass because nothing happens in them."""
    scenario = Scenario(
        failures=0.2, filters=0.2, unrewarded=0.4, group_size=3, steps=6, bound=2, sync="abort",
        seed=1,
    )  # fmt: skip
    report = judge_records(right_run(scenario))
    assert set(outcomes(report).values()) == {RuleOutcome.PASS}
    assert report.overview.fates["trained"] == 12
    assert report.overview.fates["filtered_uniform"]
    assert report.overview.fates["reward_failure"]
    assert max(report.lags["start"]) == 2

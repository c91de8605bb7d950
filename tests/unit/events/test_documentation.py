"""The example of docs/check_run.md runs, and its log is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlconform._resources import resource_dir
from rlconform.check_run.judge import judge_run
from rlconform.check_run.rules import ALL_RULES
from rlconform.check_run.verdict import RuleOutcome

PAGE = (resource_dir("suites").parent / "docs" / "check_run.md").read_text("utf-8")


def example() -> str:
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_writes_a_right_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example(), "check_run.md", "exec"), {})
    report = judge_run([Path("run/events")])
    outcomes = {verdict.rule: verdict.outcome for verdict in report.verdicts}
    not_applicable = {"resume", "plane_ops"}
    assert {rule for rule, o in outcomes.items() if o is RuleOutcome.PASS} == (
        outcomes.keys() - not_applicable
    )
    assert report.records == 39


def test_a_step_that_is_repeated_is_found_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trained = "        events.write(Trained("
    code = example()
    line = next(one for one in code.splitlines() if one.startswith(trained))
    code = code.replace(line, f"{line}\n        if step == 2:\n    {line}")
    exec(compile(code, "check_run.md", "exec"), {})
    report = judge_run([Path("run/events")])
    verdict = next(v for v in report.verdicts if v.outcome is RuleOutcome.FAIL)
    (anomaly,) = verdict.anomalies
    assert f"FAIL {verdict.rule}  {anomaly.sentence}" in PAGE
    assert [one.seq for one in anomaly.proof] == [24, 25]
    assert f"{report.records} events" in PAGE


def test_every_rule_and_every_field_failure_is_on_the_page() -> None:
    for rule in ALL_RULES:
        assert f"| `{rule.name}` |" in PAGE
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    assert numbers == list(range(1, 53))

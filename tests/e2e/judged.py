"""``judged``: expects ``check-run`` to find nothing wrong with a run."""

from __future__ import annotations

from pathlib import Path

from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.verdict import RuleOutcome


def judged(folder: Path) -> RunReport:
    """The report of a run that has written its events there; all its rules pass or don't apply."""
    report = judge_run([folder])
    right = {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}
    wrong = [
        (verdict.rule, [one.sentence for one in verdict.anomalies], verdict.missing)
        for verdict in report.verdicts
        if verdict.outcome not in right
    ]
    assert wrong == []
    return report

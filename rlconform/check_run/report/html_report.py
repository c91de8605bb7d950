"""The report as one HTML page without network access: verdict and anomalies first, then charts."""

from __future__ import annotations

from rlconform._page import render_template
from rlconform.check_run.judge import RunReport
from rlconform.check_run.report.charts import fate_bars, staleness_chart, timeline
from rlconform.check_run.report.words import (
    OUTCOME_WORDS,
    fates_in_words,
    proof_in_words,
    verdict_in_words,
)
from rlconform.check_run.verdict import RuleOutcome

#: Anomalies of a rule that are shown before the reader opens the others.
SHOWN = 2


def render_run_page(report: RunReport) -> str:
    """Return the page as HTML, with every string of the log escaped."""
    outcomes = {verdict.outcome for verdict in report.verdicts}
    worst = next(
        (one for one in (RuleOutcome.FAIL, RuleOutcome.INDETERMINATE) if one in outcomes),
        RuleOutcome.PASS,
    )
    concerned = {
        name for v in report.verdicts for anomaly in v.anomalies for name in anomaly.group_ids
    }
    return render_template(
        "rlconform.check_run.report",
        "page.html.j2",
        report=report,
        wrong=sorted(
            (verdict for verdict in report.verdicts if verdict.anomalies),
            key=lambda verdict: verdict.outcome is not RuleOutcome.FAIL,  # what is suspected last
        ),
        shown=SHOWN,
        verdict=verdict_in_words(report),
        worst=worst.value,
        fates=fates_in_words(report),
        words=OUTCOME_WORDS,
        proof=proof_in_words,
        timeline=timeline(report.overview.spans(), concerned),
        chart=staleness_chart(report.steps, _bound(report)),
        bars=fate_bars(report),
    )


def _bound(report: RunReport) -> int | None:
    declared = report.declared.staleness if report.declared is not None else None
    return declared.bound if declared is not None and declared.definition.value == "start" else None

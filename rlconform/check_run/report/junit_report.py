"""The report as JUnit XML: one test case per rule.

pass            passed
fail            failure, with the anomalies and their proofs
indeterminate   error: the log decides nothing
n/a             skipped, with the reason
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from rlconform.check_run.judge import RunReport
from rlconform.check_run.report.words import proof_in_words
from rlconform.check_run.verdict import RuleOutcome, RuleVerdict


def junit_of_run(report: RunReport) -> ElementTree.Element:
    """Return the report as a ``testsuite`` element with the counts of its cases."""
    suite = ElementTree.Element("testsuite", name=_clean(f"rlconform check-run {report.run}"))
    for verdict in report.verdicts:
        case = ElementTree.SubElement(suite, "testcase", classname="check-run", name=verdict.rule)
        if verdict.outcome is RuleOutcome.NOT_APPLICABLE:
            ElementTree.SubElement(case, "skipped", message=_clean(verdict.reason))
        elif verdict.outcome is RuleOutcome.INDETERMINATE:
            missing = f"missing: {'; '.join(verdict.missing)}"
            ElementTree.SubElement(case, "error", message=_clean(missing)).text = _text(verdict)
        elif verdict.outcome is RuleOutcome.FAIL:
            first = verdict.anomalies[0].sentence
            ElementTree.SubElement(case, "failure", message=_clean(first)).text = _text(verdict)
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(report.verdicts)))
    return suite


def _text(verdict: RuleVerdict) -> str:
    parts = [verdict.title]
    for anomaly in verdict.anomalies:
        parts += ["", anomaly.sentence, anomaly.impact, *proof_in_words(anomaly.proof)]
    return _clean("\n".join(parts))


def _clean(text: str) -> str:
    """Return ``text`` without the characters that XML 1.0 does not allow."""
    return re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)

"""Writes ``junit.xml`` for CI: one test case for each planned check, and each rule of a run.

It agrees with the certificate: a check that does not count against the plane is not a failure.

    check                                   test case
    passed                                  passed; a SHOULD violation is a property
    broke a MUST                            failure (error if rlconform is at fault)
    broke a MUST that is waived             skipped, with the waiver's reason
    broke a SHOULD                          passed, with a property WARN
    probed a capability not declared        skipped, with what the probe found
    did not run                             skipped, with the reason

    rule of check-run on a training run     test case
    passes                                  passed
    fails                                   failure, with the anomalies and their proofs
    can't decide                            skipped, with what is missing
    does not apply, or its check is waived  skipped, with the reason
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from rlconform.certify.judged_runs import JudgedRule
from rlconform.certify.results import BROKEN, CheckResult, Outcome, RequirementResult, RunRecord
from rlconform.check_run.verdict import RuleOutcome
from rlconform.contract import Requirement, load_requirements


def junit_suite(run: RunRecord, results: list[RequirementResult]) -> ElementTree.Element:
    """Return the run as a ``testsuite`` element with the counts of its cases."""
    requirements = load_requirements()
    suite = ElementTree.Element("testsuite", name=_xml_text(f"rlconform {run.target['name']}"))
    waived = {r.id: r.reason for r in results if r.outcome is Outcome.DEVIATION}
    for check in run.plan:
        case = ElementTree.SubElement(
            suite, "testcase", classname=check.requirement, name=_xml_text(check.id)
        )
        result = run.results.get(check.id)
        if result is None:
            _skip(case, check.left_out or "did not run")
            continue
        case.set("time", f"{result.seconds:.3f}")
        if run.is_probe(check):
            _skip(case, _probe_text(result))
        elif result.outcome is Outcome.NOT_TESTED:
            _skip(case, result.evidence)
        elif result.outcome in BROKEN and check.requirement in waived:
            _skip(case, waived[check.requirement])
        elif result.outcome in BROKEN and requirements[check.requirement].level == "SHOULD":
            _warn(case, [f"{result.outcome}: {result.evidence}"])
        elif result.outcome is Outcome.PASS:
            _warn(case, result.warnings)
        else:
            _fail(case, result, requirements[check.requirement])
    for result, judged in run.judged:
        for rule in judged.rules:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=_xml_text(f"check-run {result.requirement} {judged.name}"),
                name=rule.rule,
            )
            _judge(case, rule, waived.get(result.requirement, ""))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite)))
    suite.set("time", f"{run.seconds:.3f}")
    return suite


def junit_bytes(run: RunRecord, results: list[RequirementResult]) -> bytes:
    """Return ``junit.xml``."""
    suite = junit_suite(run, results)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _probe_text(result: CheckResult) -> str:
    found = "it works" if result.outcome is Outcome.PASS else f"{result.outcome}: {result.evidence}"
    return f"the target does not declare {result.capability}, so it was only probed; {found}"


def _skip(case: ElementTree.Element, why: str) -> None:
    ElementTree.SubElement(case, "skipped", message=_xml_text(why))


def _warn(case: ElementTree.Element, texts: list[str]) -> None:
    if texts:
        properties = ElementTree.SubElement(case, "properties")
        for text in texts:
            ElementTree.SubElement(properties, "property", name="WARN", value=_xml_text(text))


def _fail(case: ElementTree.Element, result: CheckResult, row: Requirement) -> None:
    tag = "error" if result.outcome is Outcome.SUITE_ERROR else "failure"
    node = ElementTree.SubElement(
        case, tag, type=result.outcome.value, message=_xml_text(result.evidence)
    )
    asked = f"{row.id}: {row.title}\n{row.sentence}\n"
    node.text = _xml_text("\n".join([asked, *result.steps, result.stacks]))


def _judge(case: ElementTree.Element, rule: JudgedRule, waived: str) -> None:
    match rule.outcome:
        case RuleOutcome.NOT_APPLICABLE:
            _skip(case, rule.reason)
        case RuleOutcome.INDETERMINATE:
            _skip(case, f"indeterminate, missing: {'; '.join(rule.missing)}")
        case RuleOutcome.FAIL if waived:
            _skip(case, waived)
        case RuleOutcome.FAIL:
            message = _xml_text(rule.anomalies[0].sentence if rule.anomalies else rule.title)
            node = ElementTree.SubElement(case, "failure", type="FAIL", message=message)
            lines = [f"{rule.title}: not so in {rule.count} cases"]
            for anomaly in rule.anomalies:
                lines += ["", anomaly.sentence, anomaly.impact, *anomaly.proof]
            node.text = _xml_text("\n".join(lines))


def _xml_text(text: str) -> str:
    """Return ``text`` without the characters that XML 1.0 does not allow."""
    return re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)

"""Makes the certificate again from what a report holds. Pure; needs no plane.

ReportDocument ──run_of──▶ RunRecord ──judge──▶ Certificate, as certify makes it
"""

from __future__ import annotations

from collections.abc import Mapping

from rlconform.certify.judged_runs import JudgedRun
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.document import CheckPart, ReportDocument
from rlconform.certify.report.judge import judge
from rlconform.certify.report.verdict import Certificate
from rlconform.certify.results import CheckResult, PlannedCheck, RunRecord


def judged_again(document: ReportDocument, histories: Mapping[str, str]) -> Certificate:
    """Return the certificate that follows from the results in the report.

    ``histories`` are the texts of the histories by path relative to the report.
    """
    header = document.header
    options = CertifyOptions(
        header.target.spec, header.target.config or {}, header.level, header.selected,
        header.check_timeout, header.seed,
    )  # fmt: skip
    run = run_of(document, histories)
    return judge(options, run, document.waivers, header.allow_deviations, header.created)


def run_of(document: ReportDocument, histories: Mapping[str, str]) -> RunRecord:
    """Return the run that the report describes; of the target, what a verdict depends on."""
    header = document.header
    plan = [
        PlannedCheck(
            part.id, part.requirement, part.capability, part.level, part.left_out, part.patience
        )
        for part in document.checks
    ]
    runs: dict[str, list[JudgedRun]] = {}
    for part in document.runs:
        judged = JudgedRun(part.name, part.verdict, part.events, part.groups, part.rules)
        runs.setdefault(part.check, []).append(judged)
    run = RunRecord(
        target={
            "name": header.target.name,
            "level": header.level,
            "capabilities": header.target.capabilities,
        },
        plan=plan,
        results={
            part.id: _result(part, histories.get(part.history, ""), runs.get(part.id, []))
            for part in document.checks
            if part.ran
        },
        notes=document.notes,
        jobs=header.jobs,
        children=header.test_processes,
        process_seconds=header.seconds.processes,
        seconds=header.seconds.total,
    )
    run.complete = bool(run.plan) and not run.pending
    return run


def _result(part: CheckPart, history: str, runs: list[JudgedRun]) -> CheckResult:
    return CheckResult(
        part.id, part.requirement, part.outcome, part.capability, part.evidence, part.warnings,
        part.steps, part.stacks, part.seconds, part.plane_seconds, part.start_seconds,
        at_once=part.at_once, history=history, leans_on=part.leans_on, runs=runs,
    )  # fmt: skip

"""Judges a run: from the results of its checks to a certificate. Pure: the same run, the same.

    RunRecord ──▶ results by requirement ──▶ root causes ──▶ waivers ──▶ verdict

``certify`` calls it after a run, ``verify`` on what a report holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.root_causes import root_causes, with_followers
from rlconform.certify.report.verdict import Certificate, requirement_results, verdict_of
from rlconform.certify.report.waivers import Waiver, apply_waivers
from rlconform.certify.results import RunRecord
from rlconform.contract import load_requirements


def judge(
    options: CertifyOptions,
    run: RunRecord,
    waivers: Sequence[Waiver],
    allow_deviations: bool,
    created: datetime,
) -> Certificate:
    """Return the certificate; ``created`` is the time at which waivers may have expired."""
    requirements = load_requirements()
    results = with_followers(
        requirement_results(
            requirements, run.plan, run.results, run.target["level"], run.target["capabilities"]
        ),
        run.results.values(),
    )
    musts = [row.id for row in requirements.values() if row.level == "MUST"]
    causes = root_causes(results, run.results.values(), musts)
    results, problems = apply_waivers(results, waivers, created.date())
    is_whole = run.complete and not options.selection
    conclusion = verdict_of(requirements, results, is_whole, problems, allow_deviations)
    return Certificate(
        options, run, results, conclusion, causes, is_whole, waivers, allow_deviations, created
    )

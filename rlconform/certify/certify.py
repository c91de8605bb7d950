"""``certify``: runs the checks that the options select, and builds a certificate.

Runner ──RunRecord──▶ results by requirement ──▶ root causes ──▶ waivers ──▶ verdict
                                                                                │
report.json, junit.xml, reproducers/, histories/ ◀── write_report ◀─────────────┘
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.runner import Listener, Runner
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.root_causes import root_causes, with_followers
from rlconform.certify.report.verdict import Certificate, requirement_results, verdict_of
from rlconform.certify.report.waivers import Waiver, apply_waivers
from rlconform.contract import load_requirements


def certify(
    options: CertifyOptions,
    *,
    waivers: Sequence[Waiver] = (),
    allow_deviations: bool = False,
    listener: Listener | None = None,
    fork_server: ForkServer | None = None,
) -> Certificate:
    """Run the checks and judge the plane; call ``listener`` with every event of the run.

    With a ``fork_server``, which stays open, several certifications share its slow start.

    Raises:
        PlaneDidNotStart: The plane can't be opened, or pytest can't use the options.
        KeyboardInterrupt: The user interrupts the run before the first check.
    """
    run = Runner(options, listener, fork_server).certify()
    requirements = load_requirements()
    level = run.target["level"]
    if not any(row.published and row.profile == level for row in requirements.values()):
        run.notes.append(f"no requirement is published yet that needs level {level}")
    results = with_followers(
        requirement_results(requirements, run.plan, run.results, level, run.target["capabilities"]),
        run.results.values(),
    )
    musts = [row.id for row in requirements.values() if row.level == "MUST"]
    causes = root_causes(results, run.results.values(), musts)
    results, problems = apply_waivers(results, waivers, datetime.now(UTC).date())
    is_whole = run.complete and not options.select
    conclusion = verdict_of(requirements, results, is_whole, problems, allow_deviations)
    return Certificate(options, run, results, conclusion, causes, is_whole)

"""``certify``: runs the checks that the options select, and builds a certificate.

Runner ──RunRecord──▶ judge ──Certificate──▶ write_report ──▶ report.json, report.html, junit.xml,
                                                              badge.json, reproducers/, histories/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.runner import Listener, Runner
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.json_report import suite_digest
from rlconform.certify.report.judge import judge
from rlconform.certify.report.verdict import Certificate
from rlconform.certify.report.waivers import Waiver
from rlconform.contract import load_requirements


def certify(
    options: CertifyOptions,
    *,
    waivers: Sequence[Waiver] = (),
    allow_deviations: bool = False,
    listener: Listener | None = None,
    fork_server: ForkServer | None = None,
    on_end: Callable[[], None] = lambda: None,
) -> Certificate:
    """Run the checks and judge the plane; call ``listener`` with every event of the run.

    With a ``fork_server``, which stays open, several certifications share its slow start.
    ``on_end`` is called once the checks have run: from then on, nothing should interrupt the call.

    Raises:
        PlaneDidNotStart: The plane can't be opened, or pytest can't use the options.
        KeyboardInterrupt: The user interrupts the run before the first check.
    """
    suite_digest()  # of the checks as they are now: they may be edited during a long run
    run = Runner(options, listener, fork_server, on_end).certify()
    level = run.target["level"]
    if not any(row.published and row.profile == level for row in load_requirements().values()):
        run.notes.append(f"no requirement is published yet that needs level {level}")
    return judge(options, run, waivers, allow_deviations, datetime.now(UTC))

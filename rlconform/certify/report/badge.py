"""``badge.json``: the verdict for a README, in the form that shields.io's endpoint badge reads."""

from __future__ import annotations

import json

from rlconform.certify.report.verdict import Certificate, Verdict
from rlconform.certify.results import BROKEN
from rlconform.contract import CURRENT_SET, load_requirements


def badge_text(certificate: Certificate) -> str:
    """Return the badge as JSON."""
    message, colour = _message(certificate)
    badge = {
        "schemaVersion": 1,
        "label": f"rlconform {CURRENT_SET} {certificate.run.target['level']}",
        "message": message,
        "color": colour,
    }
    return json.dumps(badge, indent=2) + "\n"


def _message(certificate: Certificate) -> tuple[str, str]:
    requirements = load_requirements()
    match certificate.conclusion.verdict:
        case Verdict.CERTIFIED:
            return "certified", "brightgreen"
        case Verdict.CONDITIONAL:
            waived = len(certificate.waivers)
            return f"conditional, {waived} waived", "yellow"
    broken = sum(
        result.outcome in BROKEN and requirements[result.id].level == "MUST"
        for result in certificate.results
    )
    if broken:
        return f"not certified, {broken} MUST{'s' if broken > 1 else ''} broken", "red"
    return ("not certified" if certificate.is_whole else "partial"), "lightgrey"

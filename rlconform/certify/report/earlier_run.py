"""What an earlier report says about the next run: which checks failed, and how long each took.

No result is taken over. A run of what failed last time judges those checks anew, and is never a
certificate.
"""

from __future__ import annotations

from pathlib import Path

from rlconform.certify.report.document import CheckPart, ReportDocument, read_report
from rlconform.certify.results import BROKEN, Outcome
from rlconform.contract import ConfigError

#: Outcomes that are worth another run; a check that could not run may have hung last time.
_UNSETTLED = BROKEN | {Outcome.SUITE_ERROR, Outcome.NOT_TESTED}


def failed_checks(report: ReportDocument, folder: Path, target: str | None) -> list[str]:
    """Return the ids of the checks that ran and did not pass, in the report's order.

    Raises:
        ConfigError: The report is of another target, or nothing failed.
    """
    spec = report.header.target.spec
    if target not in {None, spec}:
        raise ConfigError(f"{folder}: expected a report of {target}; got one of {spec}")
    failed = [_check(part) for part in report.checks if part.ran and part.outcome in _UNSETTLED]
    if not failed:
        raise ConfigError(
            f"{folder}: no check failed there; run all of them, without --only-failed"
        )
    return list(dict.fromkeys(failed))


def _check(part: CheckPart) -> str:
    """Return the id of the check itself, also of a change that one of its calls made."""
    return part.id.removesuffix(f"::{part.requirement}")


def seconds_of_checks(folder: Path) -> dict[str, float]:
    """Return how long each check took in the folder's report; empty if there is none."""
    try:
        report = read_report(folder)
    except ConfigError:
        return {}
    return {part.id: part.seconds for part in report.checks if part.ran}

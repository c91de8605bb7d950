"""Runs one check again, as ``rlconform certify`` does, for the verdict of a reproducer.

A script's calls can't show everything: how much memory a plane holds, how long a claim waits,
whether the history of many processes has an anomaly. The failed check can.

Import this module inside functions: it imports the runner, which renders reproducers.
"""

from __future__ import annotations

import time

from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.runner import PlaneDidNotStart, Runner
from rlconform.certify.options import CertifyOptions
from rlconform.certify.reproduce.render import Origin
from rlconform.certify.reproduce.verdict import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNDECIDED,
    ReproducerVerdict,
    split_evidence,
)
from rlconform.certify.results import BROKEN, NOT_SELECTED, CheckResult, Outcome, RunRecord
from rlconform.contract import LEVELS, Level, load_requirements

#: Seconds after which a check that depends on a race is not repeated any more.
RACING_S = 15.0


def level_asked(check: str) -> Level | None:
    """Return the level after which the check's folder is named; ``None`` for ``unit``."""
    folder = check.partition("/")[0]
    return next((level for level in LEVELS if level == folder and level != "unit"), None)


def run_check(origin: Origin, races: bool) -> ReproducerVerdict:
    """Run the check on the target. Repeat a race for a while, each time with the next seed."""
    check = origin.check
    wanted = f"what {check} checks: {load_requirements()[origin.requirement].sentence}"
    end = time.monotonic() + RACING_S
    fork_server = ForkServer()
    runs = 0
    try:
        while True:
            options = CertifyOptions(
                origin.spec,
                origin.config,
                level_asked(check),
                checks=[check.partition("::")[0]],
                requirements=[origin.requirement],
                only=[check],
                seed=origin.seed + runs,
            )
            run = Runner(options, fork_server=fork_server).certify()
            runs += 1
            result = run.results.get(check)
            if result is None or result.outcome is not Outcome.PASS:
                return _failed_verdict(wanted, result, run)
            if not races or time.monotonic() > end:
                times = f", {runs} times from as many seeds" if races else ""
                return ReproducerVerdict(NOT_REPRODUCED, wanted, f"that: the check passes{times}")
    except PlaneDidNotStart as error:
        return ReproducerVerdict(UNDECIDED, "the target to open", str(error))
    finally:
        fork_server.close()


def _failed_verdict(wanted: str, result: CheckResult | None, run: RunRecord) -> ReproducerVerdict:
    """Return the verdict of a run in which the check did not pass."""
    if result is None:
        left_out = [check.left_out for check in run.plan if check.left_out != NOT_SELECTED]
        why = "; ".join([*left_out, *run.notes]) or "no such check"
        return ReproducerVerdict(UNDECIDED, wanted, f"no answer, as the check did not run: {why}")
    if result.outcome in BROKEN:
        return ReproducerVerdict(REPRODUCED, *split_evidence(result.evidence))
    return ReproducerVerdict(UNDECIDED, wanted, f"{result.outcome}: {result.evidence}")

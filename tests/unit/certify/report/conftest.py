"""``issued``: the folder of a report as certify writes it, of a run that covers the whole suite.

The plane breaks GET-04, with a reproducer, and CLAIM-02 in a race, with a history; PUT-25 is broken
and waived. Every other check at level unit passes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path

import pytest

from rlconform.certify.concurrency.named_checkers import REPEATED
from rlconform.certify.concurrency.operation import Operation, to_jsonl
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.judge import judge
from rlconform.certify.report.report_folder import write_report
from rlconform.certify.report.signature import Signer
from rlconform.certify.report.waivers import Waiver
from rlconform.certify.requirement_index import checks_of_suites
from rlconform.certify.results import CheckResult, Outcome, PlannedCheck, RunRecord
from rlconform.contract import LEVELS, load_requirements

WAIVED = "PUT-25"
CREATED = datetime(2026, 11, 26, 12, tzinfo=UTC)
WAIVER = Waiver(
    WAIVED, "fixed in 1.5", "https://tracker.example.org/137", "other bytes", date(2027, 3, 1)
)
#: A row that two claims returned: the checker ``duplicated`` finds it.
TWICE = to_jsonl(
    [
        Operation(
            who="producer", op="put", start=1.0, end=1.1, ids=("r",), fields=("x",), version=1
        ),
        Operation(who="first", op="claim", start=1.2, end=1.3, ids=("r",), task="train", asked=4),
        Operation(who="second", op="claim", start=1.4, end=1.5, ids=("r",), task="train", asked=4),
        Operation(who="reader", op="get", start=1.25, end=1.45, ids=("r",), fields=("x",)),
    ]
)
RACE = f"none that does. duplicated: row 'r' was claimed twice ({REPEATED} duplicated)"


@cache
def suite() -> dict[str, frozenset[str]]:
    """The checks of the suite, with their requirements."""
    found = checks_of_suites()
    return {name: marks for name, marks in found.items() if not name.startswith("tests/")}


def whole_run() -> RunRecord:
    """A run of every check of the suite at level unit, with three failures."""
    requirements = load_requirements()
    plan = []
    for name, marks in suite().items():
        row = requirements[min(marks, default="GET-01")]
        level = next(one for one in LEVELS if one == name.partition("/")[0])
        capability = next(iter(row.capability), "")
        left_out = "" if level == "unit" else f"needs level {level}"
        if capability and not left_out:
            left_out = f"the target declares no {capability}: it has none"
        plan.append(PlannedCheck(name, row.id, capability, level, left_out))
    results = {
        check.id: CheckResult(check.id, check.requirement, Outcome.PASS, seconds=0.01)
        for check in plan
        if not check.left_out
    }
    named = ("objects", "dtype_fp8", "dtype_complex", "cuda", "group_claims", "restart", "control")
    target = {
        "name": "acme/shm", "vendor": "acme", "version": "1.4", "level": "unit",
        "capabilities": dict.fromkeys(named, "it has none"), "config": {"slots": 4},
        "adapter": {
            "module": "acme.plane", "distributions": {"acme": "1.4"}, "sha256": "ab", "files": 2,
        },
    }  # fmt: skip
    run = RunRecord(target, plan, results, ["a note"], children=1, seconds=9.0, complete=True)
    _break(run, "GET-04", "expected an error; got 2 rows", reproducer="print('GET-04')\n")
    _break(run, "CLAIM-02", RACE, history=TWICE)
    _break(run, WAIVED, "expected row a; got other bytes")
    return run


def _break(run: RunRecord, requirement: str, evidence: str, **more: str) -> None:
    broken = next(result for result in run.results.values() if result.requirement == requirement)
    run.results[broken.id] = replace(
        broken, outcome=Outcome.FAIL, evidence=evidence, steps=["client.get_samples(...)"], **more
    )


def issue(run: RunRecord, folder: Path, sign: Signer | None = None) -> Path:
    certificate = judge(CertifyOptions("acme.plane:TARGET"), run, [WAIVER], False, CREATED)
    return write_report(certificate, folder, force=True, sign=sign)


@pytest.fixture(scope="session")
def right_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a right report, which no test changes."""
    return issue(whole_run(), tmp_path_factory.mktemp("issued") / "report")


@pytest.fixture
def issued(right_report: Path, tmp_path: Path) -> Path:
    """The folder of a right report, which the test may change."""
    return Path(shutil.copytree(right_report, tmp_path / "report"))


@pytest.fixture
def issue_report(tmp_path: Path) -> Callable[..., Path]:
    """``issue_report(change, name, sign)`` writes the report of a run that ``change`` changed."""

    def made(
        change: Callable[[RunRecord], None] = lambda _: None,
        name: str = "report",
        sign: Signer | None = None,
    ) -> Path:
        run = whole_run()
        change(run)
        return issue(run, tmp_path / name, sign)

    return made

"""Certifies one plane in its folder, or reads the report that it has from an earlier run.

    certified ──▶ virtual environment ──▶ rlconform certify ──▶ FOLDER/NAME/report ──▶ kept
                      pip, a process       a process: waits until it has ended, or ends it

FOLDER/NAME also has ``certify.log``, ``environment``, and ``reason.txt``: why there is no report.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.field.environment import InstallFailed, python_with
from benchmarks.field.planes import FieldPlane
from rlconform._resources import resource_dir
from rlconform.certify.report.document import ReportDocument, read_report
from rlconform.contract import ConfigError, includes

ROOT = resource_dir("suites").parent
REPORT_FOLDER, _REASON = "report", "reason.txt"
ADAPTERS = ROOT / "fixtures" / "planes"
#: Seconds that a certification has to write its report once it was told to end.
_ENDING_S = 120


@dataclass(frozen=True)
class FieldResult:
    """A plane's report, or the reason why it has none."""

    plane: FieldPlane
    report: ReportDocument | None
    reason: str = ""


def kept(plane: FieldPlane, folder: Path) -> FieldResult:
    """Return what an earlier run left: a whole report of the plane's level or above, or why not."""
    own = folder / plane.name
    if plane.not_run:
        return FieldResult(plane, None, plane.not_run)
    try:
        report = read_report(own / REPORT_FOLDER)
    except ConfigError:
        reason = own / _REASON
        return FieldResult(
            plane, None, reason.read_text("utf-8") if reason.exists() else "it was not run yet"
        )
    header = report.header
    if header.target.spec != plane.target or header.selected or not report.footer.complete:
        return FieldResult(plane, None, "its report is not whole: run it again")
    if not includes(header.level, plane.level):
        return FieldResult(plane, None, f"its report is of level {header.level}: run it again")
    return FieldResult(plane, report)


def certified(
    plane: FieldPlane, folder: Path, checkouts: Mapping[str, Path], timeout_s: float
) -> FieldResult:
    """Certify the plane; a failure to install or to start becomes the result's reason."""
    own = folder / plane.name
    own.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(own / REPORT_FOLDER, ignore_errors=True)
    try:
        reason = _certify(plane, own, checkouts, timeout_s)
    except InstallFailed as error:
        reason = f"{', '.join(plane.packages)} can't be installed: {error}"
    (own / _REASON).write_text(reason, "utf-8")
    return kept(plane, folder)


def _certify(plane: FieldPlane, own: Path, checkouts: Mapping[str, Path], timeout_s: float) -> str:
    """Certify the plane in its own folder; return why it may have no report."""
    if plane.checkout and plane.checkout not in checkouts:
        return f"it needs --{plane.checkout} PATH, a checkout"
    python = python_with(plane.packages, (own / "environment").absolute())
    path = [ROOT, *([checkouts[plane.checkout].resolve()] if plane.checkout else [])]
    log, out = own / "certify.log", (own / REPORT_FOLDER).absolute()
    command = [str(python), "-m", "rlconform", "certify", *arguments(plane, out)]
    ended = _run(command, os.pathsep.join(map(str, path)), log, timeout_s)
    return ended or _last_line(log)


def arguments(plane: FieldPlane, out: Path) -> list[str]:
    """Return what ``rlconform certify`` is given for the plane."""
    jobs = [] if plane.jobs is None else ["--jobs", str(plane.jobs)]
    return [plane.target, "--level", plane.level, "--out", str(out), *jobs]


def _run(command: list[str], path: str, log: Path, timeout_s: float) -> str:
    """Run the command; return why it was ended early, or ""."""
    environment = os.environ | {"PYTHONPATH": path}
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, cwd=ADAPTERS, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # it still writes what it has, and ends its processes
            process.wait(_ENDING_S)
            return f"it was ended after {timeout_s:g} s; --timeout sets another limit"
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    return ""


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    return next(filter(None, reversed(lines)), "it printed nothing")

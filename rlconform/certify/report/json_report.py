"""Builds and writes ``report.json`` with its reproducers and histories; marks a partial report."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import rlconform
from rlconform._versions import installed_versions
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.junit import junit_suite
from rlconform.certify.report.verdict import Certificate
from rlconform.certify.results import Outcome, PlannedCheck, RunRecord
from rlconform.contract import CURRENT_SET, LEVELS, ConfigError, load_requirements
from rlconform.contract.requirements import requirement_set_digest

#: Version of the document; 2 has ``runs``.
SCHEMA = 2

#: Folder of the histories next to the report, one file for each check that has one.
HISTORIES = "histories"
REPRODUCERS = "reproducers"
#: Attributes of each requirement that the report repeats with its result.
_REPEATED = ("level", "title", "sentence", "why")

#: Packages whose versions may influence a verdict.
PACKAGES = ("torch", "tensordict", "numpy", "ray", "pytest", "hypothesis")


def build_report(certificate: Certificate) -> dict[str, Any]:
    """Return the report as plain data. ``footer``: whether it is complete, digest of the body."""
    run, requirements = certificate.run, load_requirements()
    body = {
        "verdict": asdict(certificate.conclusion),
        "causes": [asdict(cause) for cause in certificate.causes],
        "requirements": [
            asdict(result) | {key: getattr(requirements[result.id], key) for key in _REPEATED}
            for result in certificate.results
        ],
        "checks": [_check(run, check) for check in run.plan],
        "runs": [
            {"check": result.id, "requirement": result.requirement} | asdict(judged)
            for result, judged in run.judged
        ],
        "notes": run.notes,
    }
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return {
        "schema": SCHEMA,
        "header": _header(certificate.options, run),
        **body,
        "footer": {
            "complete": run.complete,
            "checks_planned": len(run.due),
            "checks_run": len(run.results),
            "body_sha256": hashlib.sha256(canonical.encode()).hexdigest(),
        },
    }


def _header(options: CertifyOptions, run: RunRecord) -> dict[str, Any]:
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": run.target | {"spec": options.spec},
        "level": run.target.get("level"),
        "selected": options.select,
        "check_timeout": options.check_timeout,
        "seed": options.seed,
        "kit": rlconform.__version__,
        "requirement_set": CURRENT_SET,
        "requirement_set_sha256": requirement_set_digest(),
        "versions": {"python": platform.python_version()} | installed_versions(PACKAGES),
        "host": {
            "system": platform.platform(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "seconds": {name: round(took, 3) for name, took in asdict(run.time_split).items()},
        "test_processes": run.children,
    }


def _check(run: RunRecord, check: PlannedCheck) -> dict[str, Any]:
    if check.id in run.results:
        shown = asdict(run.results[check.id])
        shown.pop("reproducer")
        shown.pop("runs")
        if shown.pop("history"):
            shown["history"] = f"{HISTORIES}/{_file_name(check.id)}"
        return shown
    return asdict(check) | {"outcome": Outcome.NOT_TESTED}


def write_report(certificate: Certificate, out: Path, force: bool = False) -> Path:
    """Write the report below the folder that ``folder_to_write`` selects; return that folder.

    Its files are ``report.json``, ``junit.xml``, ``reproducers/<requirement>.py`` and
    ``histories/<check>.jsonl``; reproducers and histories of an earlier report are removed.

    Raises:
        ConfigError: The report can't be written.
    """
    report, run = build_report(certificate), certificate.run
    folder = folder_to_write(out, report["header"], certificate.is_whole, force)
    text = json.dumps(report, indent=2, ensure_ascii=False, default=str) + "\n"
    suite = ElementTree.ElementTree(junit_suite(run, certificate.results))
    histories = {_file_name(r.id): r.history for r in run.results.values() if r.history}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_all(folder, "report.json", {"report.json": text})
        suite.write(folder / "junit.xml", encoding="utf-8", xml_declaration=True)
        _write_all(folder / REPRODUCERS, "*.py", _scripts(run))
        _write_all(folder / HISTORIES, "*.jsonl", histories)
    except OSError as error:
        raise ConfigError(f"--out {folder}: no report was written: {error}") from error
    return folder


def folder_to_write(out: Path, header: Mapping[str, Any], whole: bool, force: bool) -> Path:
    """Return ``out``, unless it has the report of a complete run that the new run covers in part.

    Else return the first of ``<out>-partial``, ``<out>-partial-2``, ... without such a report. A
    complete run of the same target at a lower level covers only a part, too. ``header`` and
    ``whole`` are the new report's; ``force`` uses ``out`` whatever it holds.
    """
    if force:
        return out
    named = out.resolve() if out.name in {"", ".."} else out
    others = (named.with_name(f"{named.name}-partial{'' if n == 1 else f'-{n}'}") for n in count(1))
    return next(folder for folder in chain([out], others) if not _keeps(folder, header, whole))


def _keeps(folder: Path, new: Mapping[str, Any], whole: bool) -> bool:
    """Whether the folder has the report of a complete run of which the new run is only a part."""
    try:
        report = json.loads((folder / "report.json").read_text("utf-8"))
        header = report["header"]
        if not report["footer"]["complete"] or header["selected"]:
            return False
        if not whole:
            return True
        above = LEVELS.index(header["level"]) > LEVELS.index(new["level"])
        return above and bool(header["target"]["spec"] == new["target"]["spec"])
    except (OSError, ValueError, LookupError, TypeError):
        return False  # not a report


def _scripts(run: RunRecord) -> dict[str, str]:
    """Return the shortest script of each broken requirement, by file name.

    Scripts of sequential calls are preferred to a script that runs a whole race, and both to one
    that makes the calls of a check's threads one by one.
    """
    ranked = sorted(
        (result for result in run.results.values() if result.reproducer),
        key=lambda result: (result.at_once, bool(result.history), len(result.reproducer)),
    )
    return {f"{result.requirement}.py": result.reproducer for result in reversed(ranked)}


def _write_all(folder: Path, pattern: str, files: Mapping[str, str]) -> None:
    """Replace the files in the folder that match ``pattern`` by ``files`` (texts by name)."""
    for old in folder.glob(pattern):
        old.unlink()
    for name, text in files.items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")


def _file_name(check_id: str) -> str:
    """Return a unique, readable file name for a check's id, without special characters."""
    readable = re.sub(r"[^\w.-]+", "-", check_id)[-100:]
    return f"{readable}-{hashlib.sha256(check_id.encode(errors='replace')).hexdigest()[:8]}.jsonl"

"""Writes the folder of a report: ``report.json`` and the files whose digests are in its footer.

report.json            the document; its footer has the digests of all files below
report.html            the same as a page
junit.xml, badge.json  for continuous integration, and for a README
reproducers/           a script for each broken requirement, and a plain one where that shows it
histories/             for each failed race every call, one JSON line each
report.json.sig        the signature of report.json, with ``--sign``
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

from rlconform.certify.report.badge import badge_text
from rlconform.certify.report.document import REPORT, load_report, parse_report
from rlconform.certify.report.json_report import build_report, history_file
from rlconform.certify.report.junit import junit_bytes
from rlconform.certify.report.page.certificate_page import render_certificate
from rlconform.certify.report.signature import SIGNATURE, Signer
from rlconform.certify.report.verdict import Certificate
from rlconform.certify.reproduce.render import NOT_ALL
from rlconform.certify.results import CheckResult, RunRecord
from rlconform.contract import ConfigError, includes

PAGE, JUNIT, BADGE = "report.html", "junit.xml", "badge.json"
HISTORIES, REPRODUCERS = "histories", "reproducers"
#: End of the name of a script that needs nothing of rlconform.
PLAIN = "_plain.py"


def write_report(
    certificate: Certificate, out: Path, force: bool = False, sign: Signer | None = None
) -> Path:
    """Write the report below the folder that ``folder_to_write`` selects; return that folder.

    The files of an earlier report are removed. ``report.json`` is written first, without the
    digests of the others, so that no mistake in making them loses the results.

    Raises:
        ConfigError: The report can't be written.
    """
    report = build_report(certificate)
    folder = folder_to_write(out, report["header"], certificate.is_whole, force)
    try:
        _clean(folder)
        _write(folder / REPORT, _text_of(report))  # without the seal: the rest may fail
        files = files_of(certificate, report)
        report["footer"]["files"] = {
            name: hashlib.sha256(data).hexdigest() for name, data in files.items()
        }
        written = _text_of(report)
        for name, data in {**files, REPORT: written}.items():
            _write(folder / name, data)
        if sign is not None:
            _write(folder / SIGNATURE, sign(written).encode("ascii"))
    except OSError as error:
        raise ConfigError(f"--out {folder}: no report was written: {error}") from error
    return folder


def _text_of(report: Mapping[str, Any]) -> bytes:
    text = json.dumps(report, indent=2, ensure_ascii=False, default=str) + "\n"
    return text.encode("utf-8", "backslashreplace")


def _write(path: Path, data: bytes) -> None:
    """Write the file as a whole: who reads it meanwhile sees the earlier one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}-{os.getpid()}")
    unfinished.write_bytes(data)
    unfinished.replace(path)


def files_of(certificate: Certificate, report: Mapping[str, Any]) -> dict[str, bytes]:
    """Return every file of the report but ``report.json``, by relative path."""
    run = certificate.run
    histories = {history_file(r.id): r.history for r in run.results.values() if r.history}
    scripts = {f"{REPRODUCERS}/{name}": text for name, text in _scripts(run).items()}
    plain = json.loads(json.dumps(report, default=str))
    page = render_certificate(parse_report(plain, Path(REPORT)), histories, scripts)
    texts = {PAGE: page, BADGE: badge_text(certificate), **scripts, **histories}
    return {JUNIT: junit_bytes(certificate.run, certificate.results)} | {
        name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()
    }


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
        report = load_report(folder)
        header = report["header"]
        if not report["footer"]["complete"] or header["selected"]:
            return False
        if not whole:
            return True
        above = header["level"] != new["level"] and includes(header["level"], new["level"])
        return above and bool(header["target"]["spec"] == new["target"]["spec"])
    except (OSError, ValueError, LookupError, TypeError):
        return False  # not a report


def _scripts(run: RunRecord) -> dict[str, str]:
    """Return the shortest script of each broken requirement, by file name.

    Scripts of sequential calls are preferred to a script that runs a whole race, and both to one
    that makes the calls of a check's threads one by one; of each kind those that have all calls.
    """

    def rank(result: CheckResult) -> tuple[bool, bool, bool, int]:
        script = result.reproducer
        return result.at_once, bool(result.history), NOT_ALL in script, len(script)

    ranked = sorted((result for result in run.results.values() if result.reproducer), key=rank)
    plain = sorted(
        (result for result in ranked if result.plain_script),
        key=lambda result: len(result.plain_script),
    )
    return {
        **{f"{result.requirement}.py": result.reproducer for result in reversed(ranked)},
        **{f"{result.requirement}{PLAIN}": result.plain_script for result in reversed(plain)},
    }


def _clean(folder: Path) -> None:
    """Remove the files of an earlier report that the new one may not have."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in (f"{REPRODUCERS}/*.py", f"{HISTORIES}/*.jsonl", SIGNATURE, PAGE, JUNIT, BADGE):
        for old in folder.glob(pattern):
            old.unlink()

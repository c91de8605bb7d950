"""Verifies a report offline: is it as it was written, and does its verdict follow from it?

    signature ─ seal (digests of all parts) ─ requirement set ─ plan against the suite
        ─ outcomes against evidence and histories ─ results and verdict, judged again

Without a signature a report proves only that it is consistent: who changes everything alike and
renews all digests is found by ``--key`` alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rlconform._files import is_file, read_bytes
from rlconform.certify.report.document import (
    REPORT,
    ReportDocument,
    body_digest,
    digest_of,
    load_report,
    parse_report,
    report_file,
)
from rlconform.certify.report.signature import SIGNATURE, Verifier
from rlconform.certify.report.verify_results import check_findings, result_findings
from rlconform.contract import CURRENT_SET, ConfigError
from rlconform.contract.requirements import requirement_set_digest

#: Folders whose every file belongs to the report.
OWN_FOLDERS = ("histories", "reproducers")
#: Files that every report has.
ALWAYS_WRITTEN = ("report.html", "junit.xml", "badge.json")


#: Bytes of the longest file of a signature; one of ed25519 has 89.
LONGEST_SIGNATURE = 1 << 10


class Fault(StrEnum):
    """What may be wrong with a report."""

    TAMPERED = "tampered with"
    MISSING = "missing"
    PARTIAL = "partial"
    OTHER_SET = "another requirement set"
    SIGNATURE = "signature"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a report."""

    fault: Fault
    where: str  # the part concerned
    what: str  # expected ...; got ...


@dataclass(frozen=True)
class Verification:
    """What ``verify`` found; ``document`` is None if the report can't be read."""

    document: ReportDocument | None
    findings: list[Finding]
    signed: bool  # whether a signature was checked and holds


def verify_report(place: Path, is_signed: Verifier | None = None) -> Verification:
    """Verify a report, named by its folder or file; ``is_signed`` checks its signature.

    Raises:
        ConfigError: There is no report.
    """
    path = report_file(place)
    if not is_file(path):
        raise ConfigError(f"{path}: no such file; name the --out folder of certify")
    findings = list(_signature(path, is_signed)) if is_signed else []
    signed = is_signed is not None and not findings
    try:
        report = load_report(path)
        document = parse_report(report, path)
    except ConfigError as error:
        findings.append(Finding(Fault.TAMPERED, REPORT, str(error)))
        return Verification(None, findings, signed)
    findings += _seal(report)
    texts, about_files = _files(document, path.parent)
    findings += about_files
    others = list(_requirement_set(document))
    findings += others
    findings += [Finding(Fault.TAMPERED, *one) for one in check_findings(document, texts)]
    if not others:  # results can't be judged by another set
        wrong = result_findings(report, document, texts)
        findings += [Finding(Fault.TAMPERED, *one) for one in wrong]
    findings += _partial(document)
    return Verification(document, findings, signed)


def _signature(path: Path, is_signed: Verifier) -> Iterator[Finding]:
    file = path.with_name(SIGNATURE)
    try:
        signature = read_bytes(file, "sign the report again", LONGEST_SIGNATURE)
    except ConfigError as error:
        missing = "expected a signature; the report has none"
        yield Finding(Fault.SIGNATURE, SIGNATURE, str(error) if is_file(file) else missing)
        return
    if not is_signed(read_bytes(path, "name a report"), signature.decode("ascii", "replace")):
        yield Finding(
            Fault.SIGNATURE, SIGNATURE,
            "expected the key's signature of report.json; it is another key's, or of another text",
        )  # fmt: skip


def _seal(report: Mapping[str, Any]) -> Iterator[Finding]:
    footer = report["footer"]
    found = {
        "header": digest_of(report["header"]),
        "body": body_digest(report),
    }
    for part, digest in found.items():
        if footer[f"{part}_sha256"] != digest:
            yield Finding(
                Fault.TAMPERED,
                part,
                "its digest is not the one in the footer: it was changed later",
            )


def _files(document: ReportDocument, folder: Path) -> tuple[dict[str, str], list[Finding]]:
    """Return the texts of the report's other files that are there, and what is wrong with them."""
    texts, findings = {}, []
    for name, digest in document.footer.files.items():
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            findings.append(Finding(Fault.TAMPERED, name, "expected a path below the report"))
        elif not is_file(path):
            findings.append(
                Finding(Fault.MISSING, name, "the footer names it, but it is not there")
            )
        else:
            try:
                data = read_bytes(path, "copy the report again")
            except ConfigError as error:
                findings.append(Finding(Fault.MISSING, name, str(error)))
                continue
            texts[name] = data.decode("utf-8", "replace")
            if hashlib.sha256(data).hexdigest() != digest:
                changed = "its digest is not the one in the footer: it was changed later"
                findings.append(Finding(Fault.TAMPERED, name, changed))
    for check in document.checks:
        if check.history and check.history not in document.footer.files:
            what = f"the history of {check.id} is not among the files in the footer"
            findings.append(Finding(Fault.MISSING, check.history, what))
    return texts, [*findings, *_unnamed(document, folder)]


def _unnamed(document: ReportDocument, folder: Path) -> Iterator[Finding]:
    """Find files of the report that it does not name, so that anything may be in them."""
    for own in OWN_FOLDERS:
        for path in sorted((folder / own).glob("*")):
            name = f"{own}/{path.name}"
            if path.is_file() and name not in document.footer.files:
                yield Finding(Fault.TAMPERED, name, "the report does not name this file")
    for name in ALWAYS_WRITTEN:
        if name not in document.footer.files and is_file(folder / name):
            yield Finding(Fault.TAMPERED, name, "the footer has no digest of this file")


def _requirement_set(document: ReportDocument) -> Iterator[Finding]:
    header = document.header
    if header.requirement_set != CURRENT_SET:
        yield Finding(
            Fault.OTHER_SET, "requirement_set",
            f"expected {CURRENT_SET}, which this rlconform has; got {header.requirement_set}: "
            f"verify it with rlconform {header.kit}",
        )  # fmt: skip
    elif header.requirement_set_sha256 != requirement_set_digest():
        yield Finding(
            Fault.OTHER_SET, "requirement_set_sha256",
            f"the text of {CURRENT_SET} is not the one that this rlconform has: verify it with "
            f"rlconform {header.kit}",
        )  # fmt: skip


def _partial(document: ReportDocument) -> Iterator[Finding]:
    due = [check for check in document.checks if not check.left_out]
    ran = [check for check in due if check.ran]
    if len(ran) < len(due):
        what = f"{len(ran)} of {len(due)} checks ran"
        yield Finding(Fault.PARTIAL, "checks", what)
    if document.header.selected:
        what = f"only some checks were selected: {document.header.selected}"
        yield Finding(Fault.PARTIAL, "selected", what)

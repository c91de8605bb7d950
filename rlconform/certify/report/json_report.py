"""Builds ``report.json`` as plain data from a certificate."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from dataclasses import asdict
from functools import cache
from typing import Any

import rlconform
from rlconform._resources import resource_dir
from rlconform._versions import installed_versions
from rlconform.certify.adapter_source import source_digest
from rlconform.certify.report.document import SCHEMA, body_digest, digest_of
from rlconform.certify.report.verdict import Certificate
from rlconform.certify.results import Outcome, PlannedCheck, RunRecord
from rlconform.contract import CURRENT_SET, load_requirements
from rlconform.contract.requirements import requirement_set_digest

#: Attributes of each requirement that the report repeats with its result.
_REPEATED = ("level", "title", "sentence", "why")

#: Packages whose versions may influence a verdict.
PACKAGES = ("torch", "tensordict", "numpy", "ray", "pytest", "hypothesis")


def build_report(certificate: Certificate) -> dict[str, Any]:
    """Return the report as plain data, without the digests of the other files in its footer."""
    run = certificate.run
    body = body_of(certificate)
    header = _header(certificate)
    return {
        "schema": SCHEMA,
        "header": header,
        **body,
        "footer": {
            "complete": run.complete,
            "checks_planned": len(run.due),
            "checks_run": len(run.results),
            "header_sha256": digest_of(header),
            "body_sha256": body_digest(body),
            "files": {},
        },
    }


def body_of(certificate: Certificate) -> dict[str, Any]:
    """Return what was found: the part of the report that follows from the run alone."""
    run, requirements = certificate.run, load_requirements()
    return {
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
        "waivers": [asdict(waiver) for waiver in certificate.waivers],
        "notes": run.notes,
    }


def _header(certificate: Certificate) -> dict[str, Any]:
    options, run = certificate.options, certificate.run
    return {
        "created": certificate.created.isoformat(timespec="seconds"),
        "target": run.target | {"spec": options.spec},
        "level": run.target.get("level"),
        "selected": options.selection,
        "check_timeout": options.check_timeout,
        "seed": options.seed,
        "allow_deviations": certificate.allow_deviations,
        "kit": rlconform.__version__,
        "requirement_set": CURRENT_SET,
        "requirement_set_sha256": requirement_set_digest(),
        "suite_sha256": suite_digest(),
        "versions": {"python": platform.python_version()} | installed_versions(PACKAGES),
        "host": {
            "system": platform.platform(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "seconds": {name: round(took, 3) for name, took in asdict(run.time_split).items()},
        "test_processes": run.children,
        "jobs": run.jobs,
    }


@cache
def suite_digest() -> str:
    """Return the digest of the checks' source, made as an adapter's is."""
    suites = resource_dir("suites")
    return source_digest({p.relative_to(suites).as_posix(): p for p in suites.rglob("*.py")})


def _check(run: RunRecord, check: PlannedCheck) -> dict[str, Any]:
    shown = asdict(check) | {"ran": check.id in run.results, "outcome": Outcome.NOT_TESTED}
    if check.id in run.results:
        shown |= asdict(run.results[check.id])
        del shown["reproducer"], shown["plain_script"], shown["runs"]
        shown["history"] = history_file(check.id) if shown["history"] else ""
    return shown


def history_file(check_id: str) -> str:
    """Return the unique, readable file name of a check's history, without special characters."""
    readable = re.sub(r"[^\w.-]+", "-", check_id)[-100:]
    digest = hashlib.sha256(check_id.encode(errors="replace")).hexdigest()[:8]
    return f"histories/{readable}-{digest}.jsonl"

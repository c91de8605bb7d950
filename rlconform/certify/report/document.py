"""The types of ``report.json``, from which its JSON schema is made, and how a report is read.

    report.json ──read_report──▶ ReportDocument ──▶ report.html, verify, matrix, diff, waivers

The seal: ``footer`` has the digests of header and body, and of every other file of the report.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlconform._files import excerpt, first_error, is_file, parse_json, read_text
from rlconform.certify.judged_runs import JudgedRule
from rlconform.certify.report.root_causes import RootCause
from rlconform.certify.report.verdict import Conclusion
from rlconform.certify.report.waivers import Waiver
from rlconform.certify.results import NOT_SELECTED, Outcome
from rlconform.contract import ConfigError, Level

#: Version of the document; 3 has waivers, digests of all parts, and one form for every check.
SCHEMA = 3
REPORT = "report.json"
#: The parts that ``footer.body_sha256`` covers.
BODY = ("verdict", "causes", "requirements", "checks", "runs", "waivers", "notes")


class _Part(BaseModel):
    """A part of the document; a key that it does not have is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AdapterPart(_Part):
    """Whose code was certified."""

    module: str
    distributions: dict[str, str] = {}
    sha256: str = ""
    files: int = 0


class TargetPart(_Part):
    """What was certified, and what it declares."""

    spec: str  # as it was typed
    name: str
    vendor: str = ""
    version: str = ""
    isolation: str = "session"
    capabilities: dict[str, Literal[True] | str] = {}
    timeouts: dict[str, float] = {}
    declared_level: str = ""
    level: Level
    config: Any = {}
    adapter: AdapterPart | None = None
    hosts: list[str] = []  # over which its processes were spread, the owner's first; none: one


class HostPart(_Part):
    """Where the run took place."""

    system: str
    machine: str
    cpus: int | None


class SecondsPart(_Part):
    """The run's wall time and its three parts."""

    total: float
    processes: float
    plane_calls: float
    kit: float


class HeaderPart(_Part):
    """Who was judged, when, by which rules, and where."""

    created: datetime
    target: TargetPart
    level: Level
    selected: str  # the ``-k`` expression, "failed in ..." with ``--only-failed``, or ""
    check_timeout: float | None
    seed: int
    allow_deviations: bool
    kit: str
    requirement_set: str
    requirement_set_sha256: str
    suite_sha256: str
    versions: dict[str, str | None]
    host: HostPart
    seconds: SecondsPart
    test_processes: int
    jobs: int = 1  # test processes at a time; older reports do not say


class RequirementPart(_Part):
    """The result of a requirement, with its text."""

    id: str
    outcome: Outcome
    reason: str
    checks: list[str]
    failures: list[str]
    may_follow_from: list[str]
    level: str  # its strength
    title: str
    sentence: str
    why: str

    @property
    def section(self) -> str:
        """The part of the id before the dash."""
        return self.id.rpartition("-")[0]

    @property
    def unselected(self) -> bool:
        """Whether ``-k`` deselected all its checks."""
        return not self.checks and self.reason.endswith(NOT_SELECTED)


class CheckPart(_Part):
    """A planned check and, if it ran, its result."""

    id: str
    requirement: str
    capability: str
    level: Level
    left_out: str
    patience: float
    ran: bool
    outcome: Outcome
    evidence: str = ""
    warnings: list[str] = []
    steps: list[str] = []
    stacks: str = ""
    seconds: float = 0.0
    plane_seconds: float = 0.0
    start_seconds: float = 0.0
    at_once: bool = False
    history: str = ""  # the file of its history, relative to the report, or ""
    leans_on: list[str] = []


class RunPart(_Part):
    """A training run of a check, judged by its events."""

    check: str
    requirement: str
    name: str
    verdict: str
    events: int
    groups: str
    rules: list[JudgedRule]


class FooterPart(_Part):
    """Whether the run was complete, and the seal."""

    complete: bool
    checks_planned: int
    checks_run: int
    header_sha256: str
    body_sha256: str
    files: dict[str, str]  # SHA-256 of every other file of the report, by its relative path


class ReportDocument(_Part):
    """A certificate with everything that it rests on."""

    version: Literal[3] = Field(alias="schema")
    header: HeaderPart
    verdict: Conclusion
    causes: list[RootCause]
    requirements: list[RequirementPart]
    checks: list[CheckPart]
    runs: list[RunPart]
    waivers: list[Waiver]
    notes: list[str]
    footer: FooterPart


def report_schema() -> dict[str, Any]:
    """Return the JSON schema of ``report.json``."""
    schema = ReportDocument.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def digest_of(part: Any) -> str:
    """Return the SHA-256 of a part of the document, as compact JSON with sorted keys, in ASCII."""
    text = json.dumps(part, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def body_digest(report: Mapping[str, Any]) -> str:
    """Return the digest of the body of a report."""
    return digest_of({key: report[key] for key in BODY})


def report_file(place: Path) -> Path:
    """Return the file of a report that is named by its folder or by itself."""
    return place if is_file(place) else place / REPORT


def read_report(place: Path) -> ReportDocument:
    """Read a report from its folder or file.

    Raises:
        ConfigError: There is none, or it is not a report of this schema.
    """
    return parse_report(load_report(place), report_file(place))


def load_report(place: Path) -> dict[str, Any]:
    """Read a report as plain data, which is what the seal covers; raise ``ConfigError``."""
    path = report_file(place)
    loaded = parse_json(read_text(path, "name the --out folder of certify"), str(path))
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: not a report of rlconform certify")
    return loaded


def parse_report(loaded: Mapping[str, Any], path: Path) -> ReportDocument:
    """Return plain data as a report; raise ``ConfigError`` if it isn't one of this schema."""
    if (version := loaded.get("schema")) != SCHEMA:
        raise ConfigError(
            f"{path}: expected a report of schema {SCHEMA}; got {excerpt(repr(version))}: certify "
            f"again, or use the rlconform that wrote it"
        )
    try:
        return ReportDocument.model_validate(loaded)
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_error(error)} (schema {SCHEMA})") from error

"""``JobCertificate``: the verdict of a job as ``verdict.json``, level e2e; its seal; its evidence.

    JobVerdict, digests of what the gates read ──certificate_of──▶ JobCertificate ── verdict.json
    verdict.json ──read_certificate──▶ JobCertificate, for ``rlconform verify``

``files`` has the digest of each file that a gate reads, ``sha256`` that of everything else in the
certificate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlconform._files import excerpt, first_error, parse_json, read_text
from rlconform.certify.report.document import digest_of
from rlconform.contract import ConfigError
from rlconform.launch.compare_verdicts import FILE
from rlconform.launch.gate_verdict import GateVerdict
from rlconform.launch.names import parse_name
from rlconform.launch.slurm import JobStatus

if TYPE_CHECKING:  # recipes import torch, which takes seconds
    from rlconform.launch.job_verdict import JobVerdict

#: What the judge reads, relative to the job's folder. A folder stands for all files below it.
EVIDENCE = (
    "job.json", "config.yaml", "run/metrics.jsonl", "run/events", "run/r3", "logs/*/end",
    "baseline/job.json", "baseline/run/metrics.jsonl",
)  # fmt: skip
_SEAL = "sha256"


class JobCertificate(BaseModel):
    """What ``verdict.json`` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Annotated[Literal[2], Field(alias="schema")]
    level: Literal["e2e"]
    created: datetime
    recipe: str
    plane: str
    passed: bool
    gates: tuple[GateVerdict, ...]
    slurm: JobStatus | None  # Slurm's last word; None for a folder that was judged alone
    steps: int
    gpu_hours: float
    commit: str
    modified: tuple[str, ...]
    rlconform: str
    versions: dict[str, str]
    files: dict[str, str]  # SHA-256 by path, relative to the job's folder
    sha256: str


def certificate_of(verdict: JobVerdict, folder: Path) -> dict[str, Any]:
    """Return the certificate of a job in its folder, sealed, as plain values."""
    record = verdict.record
    values: dict[str, Any] = {
        "schema": 2,
        "level": "e2e",
        "created": datetime.now(UTC),
        "recipe": record.recipe,
        "plane": parse_name(record.recipe).plane or "legacy",
        "passed": verdict.passed,
        "gates": verdict.gates,
        "slurm": verdict.status,
        **record.model_dump(include={"steps", "gpu_hours", "commit", "modified"}),
        **record.model_dump(include={"rlconform", "versions"}),
        "files": evidence_digests(folder),
        _SEAL: "",
    }
    plain = JobCertificate.model_validate(values).model_dump(mode="json", by_alias=True)
    return plain | {_SEAL: seal_of(plain)}


def seal_of(certificate: Mapping[str, Any]) -> str:
    """Return the digest of all of a certificate but its seal."""
    return digest_of({key: value for key, value in certificate.items() if key != _SEAL})


def evidence_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a job's folder that the judge reads."""
    digests = {}
    for path in _evidence(folder):
        with path.open("rb") as file:
            digests[str(path.relative_to(folder))] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _evidence(folder: Path) -> Iterator[Path]:
    for pattern in EVIDENCE:
        for path in sorted(folder.glob(pattern)):
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            yield from (file for file in files if file.is_file())


def certificate_file(place: Path) -> Path:
    """Return the file of a certificate that is named by the job's folder or by itself."""
    return place if place.name == FILE else place / FILE


def load_certificate(place: Path) -> dict[str, Any]:
    """Read a certificate as plain values; ``ConfigError`` if there is none."""
    path = certificate_file(place)
    loaded = parse_json(read_text(path, "name the folder of a judged job"), str(path))
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: expected the certificate of a job; got {type(loaded).__name__}")
    return loaded


def parse_certificate(loaded: Mapping[str, Any], place: Path) -> JobCertificate:
    """Return plain values as a certificate; ``ConfigError`` if it isn't one of this schema."""
    path = certificate_file(place)
    if (version := loaded.get("schema")) != 2:
        raise ConfigError(
            f"{path}: expected the certificate of a job, schema 2; got {excerpt(repr(version))}: "
            f"judge the job again, or use the rlconform that wrote it"
        )
    try:
        return JobCertificate.model_validate(loaded)
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_error(error)}") from error


def status_before(place: Path) -> JobStatus | None:
    """Return Slurm's last word in the certificate of an earlier verdict; None without one."""
    try:
        return parse_certificate(load_certificate(place), place).slurm
    except ConfigError:  # none was written, or by another rlconform: the folder is judged alone
        return None

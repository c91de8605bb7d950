"""``verify_job``: is the certificate of a job as it was written, and does its verdict follow?

    verdict.json ── seal ── digests of the files that the gates read ── gates, judged again
                 ── junit.xml

It needs the job's folder and no Slurm: Slurm's last word is in the certificate, and the metrics of
the legacy run are in the folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlconform import __version__
from rlconform.certify.report.verify import Fault, Finding
from rlconform.contract import ConfigError
from rlconform.launch.certificate import (
    JobCertificate,
    certificate_file,
    evidence_digests,
    load_certificate,
    parse_certificate,
    seal_of,
)
from rlconform.launch.compare_verdicts import FILE
from rlconform.launch.gate_verdict import GateVerdict
from rlconform.launch.job_folder import JobFolder
from rlconform.launch.job_verdict import JUNIT, JobVerdict, junit_bytes
from rlconform.launch.judge import judge_job


@dataclass(frozen=True)
class JobVerification:
    """What ``verify`` found; ``certificate`` is None if it can't be read."""

    certificate: JobCertificate | None
    findings: list[Finding]


def verify_job(place: Path) -> JobVerification:
    """Verify the certificate of a job, named by its folder or file.

    Raises:
        ConfigError: There is no certificate.
    """
    path = certificate_file(place)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; name the folder of a judged job")
    folder = path.absolute().parent
    try:
        loaded = load_certificate(path)
        certificate = parse_certificate(loaded, path)
    except ConfigError as error:
        return JobVerification(None, [Finding(Fault.TAMPERED, FILE, str(error))])
    findings = []
    if certificate.sha256 != seal_of(loaded):
        changed = "its digest is not the one in sha256: it was changed later"
        findings.append(Finding(Fault.TAMPERED, FILE, changed))
    findings += about_files(certificate.files, evidence_digests(folder))
    findings += _judged_again(certificate, JobFolder(folder))
    return JobVerification(certificate, findings)


def about_files(named: Mapping[str, str], there: Mapping[str, str]) -> Iterator[Finding]:
    """Compare the digests in a certificate with those of the files that are there."""
    for name, digest in named.items():
        if name not in there:
            what = "the certificate names it, but it is not there"
            yield Finding(Fault.MISSING, name, what)
        elif there[name] != digest:
            what = "its digest is not the one in the certificate: it was changed later"
            yield Finding(Fault.TAMPERED, name, what)
    for name in there.keys() - named.keys():
        what = "the certificate does not name this file: judge the job again"
        yield Finding(Fault.TAMPERED, name, what)


def _judged_again(certificate: JobCertificate, folder: JobFolder) -> Iterator[Finding]:
    try:
        again = judge_job(folder, certificate.slurm)
    except ConfigError as error:
        yield Finding(Fault.MISSING, "job.json", str(error))
        return
    other = "" if certificate.rlconform == __version__ else _other_version(certificate)
    for gate, what in differences(certificate.gates, again.gates):
        yield Finding(Fault.TAMPERED, gate, what + other)
    yield from _junit(JobVerdict(again.record, certificate.slurm, certificate.gates), folder)
    if certificate.passed != again.passed:
        said, judged = ("pass" if each.passed else "fail" for each in (certificate, again))
        yield Finding(
            Fault.TAMPERED, "passed", f"expected the verdict {judged}, from the gates; got {said}"
        )


def _junit(said: JobVerdict, folder: JobFolder) -> Iterator[Finding]:
    try:
        written = (folder.path / JUNIT).read_bytes()
    except OSError:
        yield Finding(Fault.MISSING, JUNIT, "expected the gates for CI; it is not there")
        return
    if written != junit_bytes(said):
        yield Finding(Fault.TAMPERED, JUNIT, "expected a case for each gate of the certificate")


def differences(
    said: tuple[GateVerdict, ...], judged: tuple[GateVerdict, ...]
) -> Iterator[tuple[str, str]]:
    """Compare the gates of a certificate with those that were judged again, by name and order."""
    names = list(dict.fromkeys(gate.gate for gate in (*said, *judged)))
    for name in names:
        was, now = ([each for each in gates if each.gate == name] for gates in (said, judged))
        if was != now:
            found, expected = (_texts(gates) for gates in (was, now))
            yield name, f"expected {expected}, from the job's folder; got {found}"


def _texts(gates: list[GateVerdict]) -> str:
    return "; ".join(f"{gate.outcome} ({gate.message})" for gate in gates) or "no such gate"


def _other_version(certificate: JobCertificate) -> str:
    return f" (launched by rlconform {certificate.rlconform}; this is {__version__})"

"""The ``verify`` command: is a report as it was written, and does its verdict follow from it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from rlconform._exit_codes import ExitCode
from rlconform.certify.report.signature import SIGNATURE, verifier
from rlconform.certify.report.verdict import Verdict
from rlconform.certify.report.verify import Finding, Verification, verify_report
from rlconform.cli.console import fail, new_console
from rlconform.contract import ConfigError
from rlconform.launch.compare_verdicts import is_verdict

if TYPE_CHECKING:  # recipes import torch, which takes seconds
    from rlconform.launch.verify_job import JobVerification

EPILOG = (
    "Examples:\n\n"
    "rlconform verify rlconform-report\n\n"
    "rlconform verify reports/acme --key acme.pub --certified\n\n"
    "rlconform verify jobs/RECIPE\n\n"
    "Of the folder of a judged job the gates are judged again; Slurm is not needed.\n\n"
    "Exit codes: 0 nothing is wrong with the report, whatever its verdict; 1 something is, or with "
    "--certified the plane is not; 2 there is no report, or no key."
)


def verify(
    report: Annotated[
        Path, typer.Argument(metavar="DIR", help="The --out folder of certify, or of launch.")
    ] = Path("rlconform-report"),
    key: Annotated[
        Path | None, typer.Option(help="Public ed25519 key that must have signed the report.")
    ] = None,
    certified: Annotated[
        bool,
        typer.Option("--certified", help="Succeed only if it is certified, or the job passes."),
    ] = False,
) -> None:
    """Verify a report offline: seal, files, signature; each verdict is judged again."""
    console = new_console()
    if is_verdict(report):
        raise typer.Exit(_verify_job(console, report, key, certified))
    try:
        found = verify_report(report, verifier(key) if key else None)
    except ConfigError as error:
        fail(f"verify: {error}")
    _print(console, found.findings)
    console.print(escape(_sentence(found)), highlight=False, soft_wrap=True)
    if key is None:
        has_one = report.is_dir() and (report / SIGNATURE).is_file()
        why = "it has a signature; --key checks it" if has_one else "it has no signature"
        console.print(f"Whose report it is was not checked: {why}.", highlight=False)
    verdict = found.document.verdict.verdict if found.document else None
    passed = not found.findings and (not certified or verdict is Verdict.CERTIFIED)
    raise typer.Exit(ExitCode.SUCCESS if passed else ExitCode.FAILURE)


def _verify_job(console: Console, place: Path, key: Path | None, certified: bool) -> ExitCode:
    from rlconform.launch.verify_job import verify_job  # noqa: PLC0415 - imports torch

    try:
        if key is not None:
            raise ConfigError("--key is for reports of certify; certificates of jobs are unsigned")
        found = verify_job(place)
    except ConfigError as error:
        fail(f"verify: {error}")
    _print(console, found.findings)
    console.print(escape(_job_sentence(found)), highlight=False, soft_wrap=True)
    passed = found.certificate is not None and (found.certificate.passed or not certified)
    return ExitCode.SUCCESS if passed and not found.findings else ExitCode.FAILURE


def _print(console: Console, findings: list[Finding]) -> None:
    for one in findings:
        text = f"[bold red]{one.fault}[/] [bold]{escape(one.where)}[/]: {escape(one.what)}"
        console.print(text, highlight=False, soft_wrap=True)


def _job_sentence(found: JobVerification) -> str:
    certificate = found.certificate
    if certificate is None:
        return "The certificate can't be read, so nothing else was verified."
    word = "pass" if certificate.passed else "fail"
    said = f"{certificate.recipe}: {word} at level {certificate.level}"
    if found.findings:
        return f"The certificate says {said}; {_wrong(len(found.findings))} with it."
    return (
        f"{said}. The certificate is as it was written; {len(certificate.gates)} gates and the "
        f"verdict follow from {len(certificate.files)} files."
    )


def _wrong(count: int) -> str:
    return f"{count} thing{'s are' if count > 1 else ' is'} wrong"


def _sentence(found: Verification) -> str:
    document = found.document
    if document is None:
        return "The report can't be read, so nothing else was verified."
    header = document.header
    plane = f"{header.target.name} {header.target.version}".strip()
    said = f"{plane}: {document.verdict.verdict} at level {header.level}"
    if found.findings:
        return f"The report says {said}; {_wrong(len(found.findings))} with it."
    signed = ", and signed with this key" if found.signed else ""
    return (
        f"{said}. The report is as it was written{signed}; {len(document.requirements)} results "
        f"and the verdict follow from {document.footer.checks_run} checks."
    )

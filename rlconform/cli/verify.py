"""The ``verify`` command: is a report as it was written, and does its verdict follow from it?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rlconform._exit_codes import ExitCode
from rlconform.certify.report.signature import SIGNATURE, verifier
from rlconform.certify.report.verdict import Verdict
from rlconform.certify.report.verify import Verification, verify_report
from rlconform.cli.console import fail, new_console
from rlconform.contract import ConfigError

EPILOG = (
    "Examples:\n\n"
    "rlconform verify rlconform-report\n\n"
    "rlconform verify reports/acme --key acme.pub --certified\n\n"
    "Exit codes: 0 nothing is wrong with the report, whatever its verdict; 1 something is, or with "
    "--certified the plane is not; 2 there is no report, or no key."
)


def verify(
    report: Annotated[
        Path, typer.Argument(metavar="DIR", help="The --out folder of certify.")
    ] = Path("rlconform-report"),
    key: Annotated[
        Path | None, typer.Option(help="Public ed25519 key that must have signed the report.")
    ] = None,
    certified: Annotated[
        bool, typer.Option("--certified", help="Succeed only if the plane is certified too.")
    ] = False,
) -> None:
    """Verify a report offline: seal, files, signature; each verdict is judged again."""
    console = new_console()
    try:
        found = verify_report(report, verifier(key) if key else None)
    except ConfigError as error:
        fail(f"verify: {error}")
    for one in found.findings:
        text = f"[bold red]{one.fault}[/] [bold]{escape(one.where)}[/]: {escape(one.what)}"
        console.print(text, highlight=False, soft_wrap=True)
    console.print(escape(_sentence(found)), highlight=False, soft_wrap=True)
    if key is None:
        has_one = report.is_dir() and (report / SIGNATURE).is_file()
        why = "it has a signature; --key checks it" if has_one else "it has no signature"
        console.print(f"Whose report it is was not checked: {why}.", highlight=False)
    verdict = found.document.verdict.verdict if found.document else None
    passed = not found.findings and (not certified or verdict is Verdict.CERTIFIED)
    raise typer.Exit(ExitCode.SUCCESS if passed else ExitCode.FAILURE)


def _sentence(found: Verification) -> str:
    document = found.document
    if document is None:
        return "The report can't be read, so nothing else was verified."
    header = document.header
    plane = f"{header.target.name} {header.target.version}".strip()
    said = f"{plane}: {document.verdict.verdict} at level {header.level}"
    if found.findings:
        several = "s are" if len(found.findings) > 1 else " is"
        return f"The report says {said}; {len(found.findings)} thing{several} wrong with it."
    signed = ", and signed with this key" if found.signed else ""
    return (
        f"{said}. The report is as it was written{signed}; {len(document.requirements)} results "
        f"and the verdict follow from {document.footer.checks_run} checks."
    )

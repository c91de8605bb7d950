"""The ``certify`` command."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from rlconform._exit_codes import ExitCode
from rlconform._yaml import read_config
from rlconform.backends import BUILTIN, ONE_PROCESS
from rlconform.certify import certify as certification
from rlconform.certify.isolation.runner import PlaneDidNotStart
from rlconform.certify.minimize import minimize
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.console import (
    CertifyProgress,
    print_causes,
    print_folder,
    print_summary,
    requirement_table,
)
from rlconform.certify.report.document import read_report
from rlconform.certify.report.earlier_run import failed_checks, seconds_of_checks
from rlconform.certify.report.report_folder import write_report
from rlconform.certify.report.run_verdicts import print_runs
from rlconform.certify.report.signature import Signer, signer
from rlconform.certify.report.verdict import Certificate
from rlconform.certify.report.waivers import load_waivers
from rlconform.certify.results import Outcome
from rlconform.certify.target import check_target_name
from rlconform.cli.console import fail, new_console
from rlconform.cli.interrupts import Interrupts
from rlconform.cli.output_folder import check_writable, held
from rlconform.cli.ray_address import RayAddress, use_ray_at
from rlconform.contract import LEVELS, ConfigError, Level

EPILOG = (
    "Examples:\n\n"
    "rlconform certify\n\n"
    "rlconform certify --level functional\n\n"
    "rlconform certify transfer_queue/simple --out reports/tq\n\n"
    "rlconform certify ray_store --level durability --jobs 4\n\n"
    "rlconform certify my_adapter:make_client --config plane.yaml --level functional\n\n"
    "rlconform certify my_adapter:TARGET --waivers waivers.toml --sign key.pem\n\n"
    "rlconform certify my_adapter:TARGET --only-failed rlconform-report\n\n"
    "Exit codes: 0 certified, 1 not certified (or conditional, without --allow-deviations), "
    "2 the target or the kit failed, 3 nothing ran."
)


def certify(
    target: Annotated[
        str | None,
        typer.Argument(
            help="memory, ray_store, transfer_queue/simple, transfer_queue/mooncake_cpu, an entry "
            "point, or module:attribute; default: memory, or ray_store for a level that needs "
            "several processes.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[
        str | None, typer.Option(help=f"{'|'.join(LEVELS)}; default: what the target declares.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file for the target, e.g. a data_plane: block.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report; it is created.")] = Path(
        "rlconform-report"
    ),
    select: Annotated[
        str, typer.Option("-k", help="Only checks that match (pytest -k); never certified.")
    ] = "",
    waivers: Annotated[
        Path | None, typer.Option(help="waivers.toml: failures declared with a reason.")
    ] = None,
    allow_deviations: Annotated[
        bool, typer.Option("--allow-deviations", help="Exit 0 on a conditional verdict.")
    ] = False,
    check_timeout: Annotated[
        float | None, typer.Option(help="Seconds per check, in place of the target's.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Start of the generated examples.", min=0)] = 0,
    first: Annotated[
        bool, typer.Option("-x", help="Stop at the first broken check of a MUST.")
    ] = False,
    max_failures: Annotated[
        int | None, typer.Option(help="Stop after this many broken checks of MUSTs.", min=1)
    ] = None,
    only_failed: Annotated[
        Path | None,
        typer.Option(help="Only the checks that failed in this report; never certified."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-n",
            help="Test processes at a time, each with a plane of its own; default: 1; one per core "
            "for all checks of a built-in plane, and one more for memory.",
            min=1,
            show_default=False,
        ),
    ] = None,
    large_rows: Annotated[
        bool, typer.Option("--large-rows", help="Try rows of 2 and 4 GiB (LOAD-04, durability).")
    ] = False,
    ray_address: RayAddress = None,
    spread: Annotated[
        bool, typer.Option("--spread", help="Processes on different hosts of the Ray there.")
    ] = False,
    sign: Annotated[
        Path | None, typer.Option(help="Sign the report with this ed25519 key (PEM or OpenSSH).")
    ] = None,
    shorten: Annotated[
        float,
        typer.Option(
            help="Seconds in which reproducers lose the calls that the defect does not need.", min=0
        ),
    ] = 30.0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a report of more checks by one of fewer.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Print every check, and tracebacks.")
    ] = False,
) -> None:
    """Run the contract against a plane and write a certificate. Default: a reference plane."""
    console = new_console()
    use_ray_at(ray_address)
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        only: list[str] = []
        try:
            if only_failed is not None:
                last = read_report(only_failed)
                only = failed_checks(last, only_failed, target)
                target, level = last.header.target.spec, level or last.header.level
            if target is None:
                target = "memory" if level in {None, "unit"} else "ray_store"
            options = CertifyOptions(
                target,
                read_config(config),
                _level(level),
                select,
                check_timeout,
                seed,
                large_rows=large_rows,
                max_failures=1 if first else max_failures,
                only=only,
                why_only=f"failed in {only_failed}" if only else "",
                telling_first=True,
                jobs=jobs or (1 if select or only or ray_address else usual_jobs(target)),
                spread=spread,
            )
            if spread and not ray_address:
                raise ConfigError("--spread needs --ray-address, the Ray of several hosts")
            check_target_name(target, options.level)
            waived = load_waivers(waivers) if waivers else []
            sign_with = signer(sign) if sign else None
            check_writable(out)
            stack.enter_context(held(out))
            with CertifyProgress(
                console, verbose, seconds_of_checks(only_failed or out)
            ) as progress:
                certificate = certification.certify(
                    options, waivers=waived, allow_deviations=allow_deviations,
                    listener=progress.hear, on_end=interrupts.hold,
                )  # fmt: skip
        except KeyboardInterrupt:
            _fail(target or "", ConfigError("interrupted before the first check"), verbose)
        except (ConfigError, PlaneDidNotStart) as error:
            _fail(f"{target} with {config}" if config and target else target or "", error, verbose)
        folder = _report(console, certificate, out, force, sign_with, select, len(only))
        if _shorten(console, certificate, interrupts, shorten):
            _write_again(certificate, folder, sign_with)
        if folder != out:
            console.print(
                f"{escape(str(out))} keeps the report of a run of more checks; --force replaces it",
                soft_wrap=True,  # a path of any length can be copied as it stands
            )
        print_folder(console, certificate.run, folder)
        raise typer.Exit(certificate.conclusion.exit_code)


def _report(
    console: Console,
    certificate: Certificate,
    out: Path,
    force: bool,
    sign_with: Signer | None,
    select: str,
    only: int,
) -> Path:
    """Write the report, then show it: a closed terminal does not lose it; return its folder."""
    try:
        folder, unwritten = write_report(certificate, out, force, sign_with), ""
    except ConfigError as error:
        folder, unwritten = out, str(error)
    console.print(requirement_table(certificate.results))
    print_runs(console, certificate.run)
    print_causes(console, certificate.causes)
    print_summary(console, certificate)
    if select and certificate.conclusion.exit_code == ExitCode.NOTHING_RAN:
        asked = f"-k {select!r} matches no check; name a part of a check's name, as -k test_get"
        console.print(escape(asked), highlight=False)
    if only:
        passed = sum(result.outcome is Outcome.PASS for result in certificate.run.results.values())
        console.print(
            f"{passed} of {only} checks that had failed pass; run all for a verdict",
            highlight=False,
        )
    if unwritten:
        fail(unwritten)
    return folder


def _shorten(
    console: Console, certificate: Certificate, interrupts: Interrupts, seconds: float
) -> bool:
    """Shorten the reproducers, which Ctrl-C ends; one that came before has asked for no more.

    Returns whether the report is to be written again.
    """
    broken = [one for cause in certificate.causes for one in cause.requirements]
    try:
        with interrupts.allowed(), console.status("shortening the reproducers"):
            return minimize(certificate.run, broken, 0.0 if interrupts.pressed else seconds)
    except KeyboardInterrupt:
        console.print("interrupted: some reproducers are longer than they need to be")
        return True


def _write_again(certificate: Certificate, folder: Path, sign_with: Signer | None) -> None:
    """Write the report again, with the shorter reproducers."""
    try:
        write_report(certificate, folder, True, sign_with)
    except ConfigError as error:
        fail(str(error))


#: Planes that are checked at a time, at most: each more costs its start.
MOST_JOBS = 4


def usual_jobs(target: str) -> int:
    """Return how many planes are checked at a time unless the user says it.

    Built-in planes don't meet: as many as there are cores, and one more of those of one process,
    whose checks wait for nobody else. Of a vendor's planes only the user knows: they may use a port
    or a file that only one of them can have.
    """
    if target not in BUILTIN:
        return 1
    return min(MOST_JOBS, len(os.sched_getaffinity(0)) + (target in ONE_PROCESS))


def _level(name: str | None) -> Level | None:
    if name is None or name in LEVELS:
        return name
    raise ConfigError(f"unknown level {name!r}: one of {', '.join(LEVELS)}")


def _fail(subject: str, error: Exception, verbose: bool) -> NoReturn:
    """Print one message, with details only under ``-v``, and exit with status 2."""
    message = str(error) if subject in str(error) else f"{subject}: {error}"
    detail = getattr(error, "detail", "")
    if detail and verbose:
        message += f"\n{detail}"
    elif detail and not getattr(error, "plain", False):
        message += "\nRun again with -v to see the traceback."
    fail(message)

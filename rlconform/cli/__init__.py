"""The command line: parses, calls, prints."""

from __future__ import annotations

import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.markup import escape
from rich.table import Table

import rlconform
from rlconform._exit_codes import ExitCode
from rlconform._resources import resource_dir
from rlconform._yaml import read_mapping
from rlconform.certify.isolation.runner import PlaneDidNotStart, Runner
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.console import (
    CertifyProgress,
    print_causes,
    print_folder,
    print_summary,
    requirement_table,
)
from rlconform.certify.report.json_report import build_report, folder_to_write, write_report
from rlconform.certify.report.root_causes import root_causes, with_followers
from rlconform.certify.report.verdict import requirement_results, verdict_of
from rlconform.certify.report.waivers import apply_waivers, load_waivers
from rlconform.certify.requirement_index import checks_by_requirement
from rlconform.certify.target import check_target_name
from rlconform.cli import bench as bench_command
from rlconform.cli import check_metrics as metrics_command
from rlconform.cli import self_test as selftest_command
from rlconform.cli import train as train_command
from rlconform.cli.console import fail, new_console
from rlconform.cli.output_folder import check_writable
from rlconform.contract import LEVELS, ConfigError, Level, did_you_mean, load_requirements
from rlconform.contract.incidents import load_incidents

app = typer.Typer(
    help="Conformance of RL data planes.", no_args_is_help=True, rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)  # fmt: skip
console = new_console()


def _version(wanted: bool) -> None:
    if wanted:
        console.print(rlconform.__version__)
        raise typer.Exit


@app.callback()
def root(
    _version_wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Hold an RL data plane to its contract."""


@app.command(
    epilog="Examples:\n\n"
    "rlconform certify\n\n"
    "rlconform certify --level functional\n\n"
    "rlconform certify transfer_queue/simple --out reports/tq\n\n"
    "rlconform certify my_adapter:make_client --config plane.yaml --level functional\n\n"
    "Exit codes: 0 certified, 1 not certified (or conditional, without --allow-deviations), "
    "2 the target or the kit failed, 3 nothing ran."
)
def certify(
    target: Annotated[
        str | None,
        typer.Argument(
            help="memory, ray_store, transfer_queue/simple, transfer_queue/mooncake_cpu, an entry "
            "point, or module:attribute; default: the reference plane, "
            "memory, or ray_store for a level that needs several processes.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[
        str | None, typer.Option(help=f"{'|'.join(LEVELS)}; default: what the target declares.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file handed to the target, e.g. a data_plane: block.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the report, made where there is none.")
    ] = Path("rlconform-report"),
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
    seed: Annotated[
        int, typer.Option(help="Other generated examples than those of seed 0.", min=0)
    ] = 0,
    first: Annotated[
        bool, typer.Option("-x", help="Stop at the first broken check of a MUST.")
    ] = False,
    max_failures: Annotated[
        int | None,
        typer.Option(help="Stop after so many broken checks of MUSTs.", min=1),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Let a report of fewer checks replace one of more."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Every check, and tracebacks.")
    ] = False,
) -> None:
    """Run the contract against a plane and write a certificate. Default: a reference plane."""
    requirements = load_requirements()
    target = target or ("memory" if level in {None, "unit"} else "ray_store")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled job reports as well
    try:
        options = CertifyOptions(
            target,
            _read_config(config),
            _level(level),
            select,
            check_timeout,
            seed,
            max_failures=1 if first else max_failures,
        )
        check_target_name(target, options.level)
        waived = load_waivers(waivers) if waivers else []
        check_writable(out)
        with CertifyProgress(console, verbose) as progress:
            run = Runner(options, progress.hear).certify()
    except KeyboardInterrupt:
        _fail(target, ConfigError("interrupted before the first check"), verbose)
    except (ConfigError, PlaneDidNotStart) as error:
        _fail(f"{target} with {config}" if config else target, error, verbose)
    results = requirement_results(
        requirements, run.plan, run.results, run.target["level"], run.target["capabilities"]
    )
    if not any(r.published and r.profile == run.target["level"] for r in requirements.values()):
        run.notes.append(f"no requirement is published yet that needs level {run.target['level']}")
    results = with_followers(results, run.results.values())
    musts = [row.id for row in requirements.values() if row.level == "MUST"]
    causes = root_causes(results, run.results.values(), musts)
    results, problems = apply_waivers(results, waived, datetime.now(UTC).date())
    whole = run.complete and not select
    conclusion = verdict_of(
        requirements,
        results,
        complete=whole,
        problems=problems,
        allow_deviations=allow_deviations,
    )
    console.print(requirement_table(requirements, results))
    print_causes(console, causes)
    print_summary(console, run, results, conclusion, causes)
    report = build_report(options, run, requirements, results, conclusion, causes)
    folder = folder_to_write(out, report["header"], whole, force)
    try:
        write_report(folder, report, run, requirements, results)
    except OSError as error:
        _fail(f"--out {folder}", ConfigError(f"no report was written: {error}"), verbose)
    if folder != out:
        console.print(
            f"{escape(str(out))} keeps the report of a run of more checks; --force replaces it"
        )
    print_folder(console, run, folder)
    raise typer.Exit(conclusion.exit_code)


app.command("bench", epilog=bench_command.EPILOG)(bench_command.bench)
app.command("self-test", epilog=selftest_command.EPILOG)(selftest_command.self_test)
app.command("train", epilog=train_command.EPILOG)(train_command.train)
app.command("check-metrics", epilog=metrics_command.EPILOG)(metrics_command.check_metrics)


@app.command("list")
def list_requirements(
    section: Annotated[str, typer.Argument(help="Only one section, e.g. CLAIM.")] = "",
) -> None:
    """List the requirements of the contract."""
    rows = load_requirements().values()
    shown = [row for row in rows if not section or row.section == section.upper()]
    if not shown:
        sections = ", ".join(Counter(row.section for row in rows))
        _fail(section, ConfigError(f"no section {section!r}; there are {sections}"), False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Requirement", "Level", "Profile", "Needs", "Since", "Title"):
        table.add_column(heading, no_wrap=heading != "Title")
    for row in shown:
        needs = ", ".join(row.capability) or ("kit" if row.scope == "kit" else "")
        table.add_row(row.id, row.level, row.profile, needs, row.since, escape(row.title))
    console.print(table)


@app.command(epilog="Example: rlconform explain CLAIM-02")
def explain(
    requirement: Annotated[str, typer.Argument(help="A requirement's id, e.g. CLAIM-02.")],
) -> None:
    """Say what a requirement asks and why, where it broke before, and which checks hold it."""
    row = load_requirements().get(requirement.upper())
    if row is None:
        meant = did_you_mean(requirement.upper(), load_requirements())
        unknown = ConfigError(f"no such requirement{meant}; `rlconform list` shows all")
        _fail(requirement, unknown, False)
    console.print(f"[bold]{row.id}[/] {row.level}, {row.scope}, from level {row.profile}")
    console.print(f"[bold]{escape(row.title)}[/]\n")
    console.print(f"{escape(row.sentence)}\n")
    console.print(f"Why: {escape(row.why)}")
    if row.capability:
        console.print(f"Applies to planes that declare: {', '.join(row.capability)}")
    console.print(f"Since: {row.since}")
    failures = load_incidents()
    for failure in (failures[seen] for seen in row.seen):
        console.print(f"\nSeen in {escape(failure.system)} ({failure.id}): {escape(failure.what)}")
    marked = checks_by_requirement(resource_dir("suites"))
    checks = [name for name, marks in marked.items() if row.id in marks]
    console.print("\nChecks:" if checks else f"\nNo check: {escape(row.unchecked)}")
    for name in checks:
        console.print(f"  {escape(name)}", highlight=False)


def _read_config(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        loaded = OmegaConf.to_container(read_mapping(path), resolve=True)
    except OmegaConfBaseException as error:  # an interpolation that leads nowhere
        raise ConfigError(f"{path}: {error}") from error
    assert isinstance(loaded, dict)  # made of a mapping
    return {str(key): value for key, value in loaded.items()}


def _level(name: str | None) -> Level | None:
    for level in LEVELS:
        if name == level:
            return level
    if name is None:
        return None
    raise ConfigError(f"unknown level {name!r}: one of {', '.join(LEVELS)}")


def _fail(subject: str, error: Exception, verbose: bool) -> NoReturn:
    """One clear message and exit code 2; the details only with ``-v``."""
    message = str(error) if subject in str(error) else f"{subject}: {error}"
    detail = getattr(error, "detail", "")
    if detail and verbose:
        message += f"\n{detail}"
    elif detail and not getattr(error, "plain", False):
        message += "\nRun again with -v to see the traceback."
    fail(message, ExitCode.KIT_FAILED)


def main() -> None:
    """Entry point of the ``rlconform`` command."""
    app()

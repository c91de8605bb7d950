"""The ``self-test`` command: parses its options, runs the self-test, prints the result."""

from __future__ import annotations

import json
import platform
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

import rlconform
from rlconform._exit_codes import ExitCode
from rlconform.cli.console import fail, new_console
from rlconform.cli.output_folder import check_writable
from rlconform.contract import ConfigError, did_you_mean, load_requirements
from rlconform.mutants.mutant import Mutant
from rlconform.mutants.registry import all_mutants
from rlconform.selftest.classify import GOOD
from rlconform.selftest.console import TrialProgress, mutant_table, print_summary, result_table
from rlconform.selftest.kill_matrix import KillMatrix, matrix_of, render_html, render_markdown
from rlconform.selftest.runner import Settings, cases, run_trials

EPILOG = (
    "Examples:\n\n"
    "rlconform self-test\n\n"
    "rlconform self-test --gate\n\n"
    "rlconform self-test --mutant drops_unknown_ids\n\n"
    "rlconform self-test --list --races\n\n"
    "rlconform self-test --races --seeds 20 --jobs 2\n\n"
    "Exit codes: 0 every mutant is killed as declared, 1 not so, or interrupted, 2 nothing to try."
)


def self_test(
    mutant: Annotated[
        list[str] | None, typer.Option(help="Only this one; may be given more than once.")
    ] = None,
    races: Annotated[
        bool | None,
        typer.Option(
            "--races/--no-races",
            help="Only planted races, or none of them; default: both.",
            show_default=False,
        ),
    ] = None,
    gate: Annotated[
        bool,
        typer.Option("--gate", help="Only the checks that must kill each mutant; no races."),
    ] = False,
    jobs: Annotated[int, typer.Option(help="Trials at the same time.", min=1)] = 2,
    seeds: Annotated[int, typer.Option(help="Turns of each race.", min=1)] = 20,
    until_sure: Annotated[
        bool,
        typer.Option(
            "--until-sure", help="End a race once half of its seeds have killed it each time."
        ),
    ] = False,
    effort: Annotated[
        float,
        typer.Option(
            help="Share of the generated examples, tried beside the short checks. At 0 "
            "right planes still meet a fifth of them, but for the gate.",
            min=0,
            max=1,
        ),
    ] = 0.0,
    out: Annotated[Path, typer.Option(help="Folder for the matrix.")] = Path("rlconform-self-test"),
    only_list: Annotated[
        bool, typer.Option("--list", help="Show which mutants there are, and try none.")
    ] = False,
) -> None:
    """Run the suite on planes with planted defects: the checks of its ids must kill each one."""
    console = new_console()
    known = all_mutants()
    if unknown := [name for name in mutant or () if name not in known]:
        suggestion = did_you_mean(unknown[0], known) or "; rlconform self-test --list shows them"
        fail(f"no mutant {unknown[0]!r}{suggestion}")
    chosen = {
        name: held
        for name, held in known.items()
        if (not mutant or name in mutant)
        and (races is None or held[1].chance is races)
        and not (gate and held[1].chance)
    }
    began = time.monotonic()
    due = cases(chosen, references=not mutant and races is not True, gate=gate)
    if not due:
        fail(
            "these options together leave nothing to try; races are not at the gate, and --races "
            "and --no-races leave the others out"
        )
    if only_list:
        console.print(mutant_table({name: held for name, (_, held) in chosen.items()}))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled job cleans up as well
    progress = TrialProgress(console, len(due))
    try:
        check_writable(out)
        with progress:
            judgements = run_trials(
                due, Settings(jobs, seeds, effort, gate, until_sure), progress.record
            )
    except ConfigError as error:
        fail(str(error))
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM):  # what follows takes a moment
            signal.signal(number, signal.SIG_IGN)
        judgements = progress.results
        if not judgements:
            unwritten = "self-test: interrupted before a trial was over; nothing was written"
            fail(unwritten, ExitCode.FAILURE)
    left = len(due) - len(judgements)
    partial = f"Interrupted: {left} were not tried." if left else ""
    if partial:
        console.print(f"[bold red]{partial}[/]")
    console.print(result_table(judgements))
    mutants = {name: held for name, (_, held) in known.items()}
    matrix = matrix_of(load_requirements(), mutants, judgements)
    print_summary(console, judgements, None if mutant else matrix)
    several = "s" * (len(judgements) != 1)
    console.print(f"{len(judgements)} trial{several} in {time.monotonic() - began:.0f} s")
    summary = f"{partial} Planes that were tried: {len(judgements)}.".lstrip()
    _write(out, matrix, mutants, summary, complete=not left)
    console.print(f"matrix: {out / 'self-test.html'}")
    passed = not left and all(one.kind in GOOD for one in judgements)
    raise typer.Exit(ExitCode.SUCCESS if passed else ExitCode.FAILURE)


def _write(
    out: Path, matrix: KillMatrix, mutants: Mapping[str, Mutant], summary: str, *, complete: bool
) -> None:
    """Write the matrix below ``out``: as a page, as a table for the docs, and as data."""
    judged = list(matrix.judged.values())
    header = {
        "created": datetime.now(UTC).isoformat(timespec="minutes"),
        "kit": rlconform.__version__,
        "host": platform.platform(),
        "summary": summary,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "self-test.html").write_text(render_html(matrix, mutants, header), "utf-8")
    (out / "self-test.md").write_text(render_markdown(matrix), "utf-8")
    found = {"header": header, "complete": complete, "trials": [asdict(one) for one in judged]}
    (out / "self-test.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")

"""``rlconform self-test``: parses, calls, prints."""

from __future__ import annotations

import json
import platform
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import rlconform
from rlconform.contract import ConfigError, did_you_mean, load_requirements
from rlconform.mutants.catalogue import catalogue
from rlconform.output import check_writable
from rlconform.selftest.judging import GOOD
from rlconform.selftest.matrix import matrix_of, render_html, render_markdown
from rlconform.selftest.session import Settings, cases, put_on_trial
from rlconform.selftest.show import TrialProgress, judgement_table, print_summary

EPILOG = (
    "Examples:\n\n"
    "rlconform self-test\n\n"
    "rlconform self-test --gate\n\n"
    "rlconform self-test --mutant drops_unknown_ids\n\n"
    "rlconform self-test --races --seeds 20 --jobs 2\n\n"
    "Exit codes: 0 every mutant is caught as declared, 1 not so, 2 nothing to try."
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
        typer.Option(
            "--gate", help="Each mutant before the checks that must catch it only; no races."
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(help="Trials at the same time.", min=1)] = 2,
    seeds: Annotated[int, typer.Option(help="Turns of each race.", min=1)] = 20,
    effort: Annotated[
        float,
        typer.Option(
            help="Share of the generated examples, tried beside the short checks.", min=0, max=1
        ),
    ] = 0.0,
    out: Annotated[Path, typer.Option(help="Folder for the matrix.")] = Path("rlconform-self-test"),
) -> None:
    """Hold the suite against planes with planted defects: each must be caught, by its ids alone."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    known = catalogue()
    if unknown := [name for name in mutant or () if name not in known]:
        Console(stderr=True).print(
            f"[bold red]rlconform:[/] no mutant {unknown[0]!r}{did_you_mean(unknown[0], known)} "
            f"There are {len(known)}: {', '.join(known)}",
            soft_wrap=True,
        )
        raise typer.Exit(2)
    chosen = {
        name: held
        for name, held in known.items()
        if (not mutant or name in mutant)
        and (races is None or held[1].chance is races)
        and not (gate and held[1].chance)
    }
    began = time.monotonic()
    due = cases(chosen, references=not mutant and races is not True)
    if not due:
        Console(stderr=True).print(
            "[bold red]rlconform:[/] these options together leave nothing to try; "
            "races are not at the gate, and --races and --no-races leave the others out"
        )
        raise typer.Exit(2)
    try:
        check_writable(out)
    except ConfigError as error:
        Console(stderr=True).print(f"[bold red]rlconform:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None
    with TrialProgress(console, len(due)) as progress:
        judgements = put_on_trial(due, Settings(jobs, seeds, effort, gate), progress.hear)
    shown = chosen if mutant or gate else known
    mutants = {name: held for name, (_, held) in shown.items()}
    matrix = matrix_of(load_requirements(), mutants, judgements)
    console.print(judgement_table(judgements))
    print_summary(console, judgements, None if mutant else matrix)
    console.print(f"{len(judgements)} trials in {time.monotonic() - began:.0f} s")
    header = {
        "created": datetime.now(UTC).isoformat(timespec="minutes"),
        "kit": rlconform.__version__,
        "host": platform.platform(),
        "summary": f"{len(judgements)} planes were tried.",
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "self-test.html").write_text(render_html(matrix, mutants, header), "utf-8")
    (out / "self-test.md").write_text(render_markdown(matrix), "utf-8")
    found = {"header": header, "trials": [asdict(one) for one in judgements]}
    (out / "self-test.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    console.print(f"matrix: {out / 'self-test.html'}")
    raise typer.Exit(0 if all(one.kind in GOOD for one in judgements) else 1)

"""The ``self-test`` command: parses its options, runs the self-test, prints the result."""

from __future__ import annotations

import json
import platform
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import rlconform
from rlconform._exit_codes import ExitCode
from rlconform.cli.console import fail, new_console
from rlconform.cli.output_folder import check_writable
from rlconform.cli.ray_address import RayAddress, use_ray_at
from rlconform.contract import ConfigError, did_you_mean, load_requirements
from rlconform.mutants.defect import Defect
from rlconform.mutants.mutant import Mutant
from rlconform.mutants.registry import all_mutants, one_of_each_module
from rlconform.selftest.classify import GOOD, TrialResult
from rlconform.selftest.console import (
    TrialProgress,
    defect_table,
    mutant_table,
    print_summary,
    print_wrong,
    result_table,
)
from rlconform.selftest.defect_trials import (
    DefectCase,
    all_defects,
    defect_cases,
    part_rules,
    run_defect_cases,
)
from rlconform.selftest.kill_matrix import DefectTable, matrix_of, render_html, render_markdown
from rlconform.selftest.rule_matrix import RULES, rule_lines
from rlconform.selftest.runner import Case, Settings, cases, run_trials

EPILOG = (
    "Examples:\n\n"
    "rlconform self-test\n\n"
    "rlconform self-test --gate\n\n"
    "rlconform self-test --mutant drops_unknown_ids\n\n"
    "rlconform self-test --list --races\n\n"
    "rlconform self-test --races --seeds 20 --jobs 2\n\n"
    "rlconform self-test --check-run\n\n"
    "rlconform self-test --ray-address 10.0.0.1:6379\n\n"
    "With --ray-address it tries the planes whose defect shows on several hosts only, and no "
    "others.\n\n"
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
    check_run: Annotated[
        bool | None,
        typer.Option(
            "--check-run/--no-check-run",
            help="Only defects of the trainer, which check-run must find, and of its parts, or "
            "none of them; default: they and the planes.",
            show_default=False,
        ),
    ] = None,
    gate: Annotated[
        bool,
        typer.Option("--gate", help="Only the checks that must kill each mutant; no races."),
    ] = False,
    brief: Annotated[
        bool,
        typer.Option(
            "--brief", help="Of the mutants of several processes, only the first of each module."
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(help="Trials at the same time.", min=1)] = 2,
    seeds: Annotated[int, typer.Option(help="Turns of each race.", min=1)] = 20,
    until_sure: Annotated[
        bool,
        typer.Option(
            "--until-sure", help="End a race once a third of its seeds have killed it each time."
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
    ray_address: RayAddress = None,
    out: Annotated[Path, typer.Option(help="Folder for the matrix.")] = Path("rlconform-self-test"),
    only_list: Annotated[
        bool, typer.Option("--list", help="Show which mutants there are, and try none.")
    ] = False,
) -> None:
    """Run the suite on planes with planted defects: the checks of its ids must kill each one."""
    console = new_console()
    use_ray_at(ray_address)
    hosts = ray_address is not None
    try:
        known = one_of_each_module(all_mutants()) if brief and not mutant else all_mutants()
        chosen = _choose(known, mutant or [], races, check_run, gate, hosts)
    except ConfigError as error:
        fail(str(error))
    if not chosen.planes and not chosen.runs:
        fail(_why_nothing(chosen, hosts))
    if only_list:
        by_name = sorted(chosen.planes, key=lambda case: case.name)
        planes = {case.name: case.mutant for case in by_name if case.mutant is not None}
        if planes:
            console.print(mutant_table(planes))
        if chosen.defects:
            console.print(defect_table(chosen.defects))
        _print_left_out(console, chosen)
        return
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled job cleans up as well
    progress = TrialProgress(console, chosen.size)
    try:
        check_writable(out)
        with progress:
            settings = Settings(jobs, seeds, effort, gate, until_sure, hosts)
            runs = run_defect_cases(chosen.runs)
            tried = run_trials(chosen.planes, settings, progress.record, runs)
    except ConfigError as error:
        fail(str(error))
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM):  # what follows takes a moment
            signal.signal(number, signal.SIG_IGN)
        tried = progress.results
        if not tried:
            unwritten = "self-test: interrupted before a trial was over; nothing was written"
            fail(unwritten, ExitCode.FAILURE)
    left = chosen.size - len(tried)
    partial = f"Interrupted: {left} were not tried." if left else ""
    console.print(result_table(tried))
    result = _Result(chosen, tried, partial)
    print_summary(console, tried, result.matrix if result.planes and not mutant else None)
    _print_left_out(console, chosen)
    several = "s" * (len(tried) != 1)
    console.print(f"{len(tried)} trial{several} in {time.monotonic() - began:.0f} s")
    result.write(out)
    console.print(f"matrix: {out / 'self-test.html'}")
    print_wrong(console, tried, left)
    passed = not left and all(one.kind in GOOD for one in tried)
    raise typer.Exit(ExitCode.SUCCESS if passed else ExitCode.FAILURE)


@dataclass(frozen=True)
class _Chosen:
    """What the options choose: planes, and runs of the trainer with the defects among them."""

    planes: Sequence[Case]
    runs: Sequence[DefectCase] = ()
    defects: Mapping[str, Defect] = field(default_factory=dict)
    left_out: Sequence[str] = ()  # mutants that need several hosts

    @property
    def size(self) -> int:
        return len(self.planes) + len(self.runs)


def _choose(
    known: Mapping[str, tuple[str, Mutant]],
    named: Sequence[str],
    races: bool | None,
    check_run: bool | None,
    gate: bool,
    hosts: bool,
) -> _Chosen:
    """Return what to try; ``named`` may have mutants and defects of the trainer.

    ``hosts``: there are several, for the mutants that need them; the others are tried on one.
    """
    unknown = [name for name in named if name not in known]
    runs = bool(unknown) if named else races is not True and not hosts
    defects = all_defects() if runs and check_run is not False else {}
    if left := [name for name in unknown if name not in defects]:
        suggestion = did_you_mean(left[0], [*known, *defects])
        fail(f"no mutant {left[0]!r}{suggestion or '; rlconform self-test --list shows them'}")
    asked = {
        name: held
        for name, held in known.items()
        if (not named or name in named)
        and (races is None or held[1].chance is races)
        and not (gate and held[1].chance)
        and check_run is not True
    }
    planes = {name: held for name, held in asked.items() if held[1].several_hosts is hosts}
    left_out = [] if hosts else [name for name in asked if name not in planes]
    right = races is not True and check_run is not True and not named and not hosts
    tried = {name: one for name, one in defects.items() if not named or name in named}
    return _Chosen(
        cases(planes, references=right, gate=gate),
        defect_cases(tried, right=not named) if tried else (),
        tried,
        left_out,
    )


def _why_nothing(chosen: _Chosen, hosts: bool) -> str:
    if chosen.left_out:
        return f"{', '.join(chosen.left_out)}: only several hosts show it: give --ray-address"
    if hosts:
        return (
            "with --ray-address only planes are tried whose defect shows on several hosts: leave "
            "it out, or name one of them"
        )
    return (
        "these options together leave nothing to try; races are not at the gate, and --races "
        "and --no-races leave the others out"
    )


def _print_left_out(console: Console, chosen: _Chosen) -> None:
    if chosen.left_out:
        names = ", ".join(chosen.left_out)
        console.print(f"not tried, needs --ray-address of several hosts: {names}", soft_wrap=True)


class _Result:
    """What was tried, sorted into planes and runs of the trainer."""

    def __init__(self, chosen: _Chosen, tried: Sequence[TrialResult], partial: str) -> None:
        self._partial, self._tried, self._defects = partial, tried, chosen.defects
        self._left_out = chosen.left_out
        names = {run.name for run in chosen.runs}
        self.planes = [one for one in tried if one.name not in names]
        self._runs = [one for one in tried if one.name in names]
        self._mutants = {name: held for name, (_, held) in all_mutants().items()}
        self.matrix = matrix_of(load_requirements(), self._mutants, self.planes)

    def write(self, out: Path) -> None:
        """Write the matrices below ``out``: as a page, as a table for the docs, and as data."""
        counts = f"Planes that were tried: {len(self.planes)}; runs: {len(self._runs)}."
        header = {
            "created": datetime.now(UTC).isoformat(timespec="minutes"),
            "kit": rlconform.__version__,
            "host": platform.platform(),
            "summary": f"{self._partial} {counts}".lstrip(),
        }
        out.mkdir(parents=True, exist_ok=True)
        page = render_html(self.matrix, self._mutants, header, *self._tables())
        (out / "self-test.html").write_text(page, "utf-8")
        (out / "self-test.md").write_text(render_markdown(self.matrix), "utf-8")
        found = {
            "header": header,
            "complete": not self._partial,
            "left_out": list(self._left_out),
            "trials": [asdict(one) for one in self.matrix.judged.values()],
            "trainer_trials": [asdict(one) for one in self._runs],
        }
        (out / "self-test.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")

    def _tables(self) -> tuple[DefectTable, DefectTable]:
        """Return what the page shows of the trainer, and of its parts."""
        parts = part_rules() if self._runs else ()
        of_parts = {name: one for name, one in self._defects.items() if {*one.found_by} & {*parts}}
        of_trainer = {name: one for name, one in self._defects.items() if name not in of_parts}
        right = [one for one in self._runs if one.name not in self._defects]
        return (
            DefectTable(
                RULES,
                rule_lines(of_trainer, self._runs),
                [one for one in right if not one.name.startswith("part ")],
            ),
            DefectTable(
                parts,
                rule_lines(of_parts, self._runs, parts),
                [one for one in right if one.name.startswith("part ")],
            ),
        )

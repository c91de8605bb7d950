"""The commands ``launch`` and ``judge``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlconform._exit_codes import ExitCode
from rlconform.cli.console import fail, new_console
from rlconform.cli.output_folder import check_writable
from rlconform.contract import ConfigError

if TYPE_CHECKING:  # recipes import torch, which takes seconds
    from rlconform.launch.job_folder import JobFolder
    from rlconform.launch.job_verdict import JobVerdict
    from rlconform.launch.slurm import JobStatus

EPILOG = (
    "Examples:\n\n"
    "rlconform launch grpo-qwen3-30ba3b-2n8g-megatron-tp2-seqpack-tq_simple --dry-run\n\n"
    "rlconform launch grpo-llama3.1-8b-instruct-2n8g-fsdp2-ray_store-tiny --site site.yaml\n\n"
    "rlconform launch grpo-llama3.1-8b-instruct-2n8g-fsdp2 --steps 10 "
    "policy.model_name=/models/Llama data.path=train.jsonl data.val_path=test.jsonl\n\n"
    "A folder that holds the same recipe goes on from its checkpoint. docs/recipes.md has the "
    "names, the keys of a site, and common failures.\n\n"
    "Exit codes: 0 every gate passes, 1 one does not, 2 the recipe can't be used or Slurm refuses "
    "the job."
)
JUDGE_EPILOG = (
    "Examples:\n\n"
    "rlconform judge jobs/grpo-llama3.1-8b-instruct-2n8g-fsdp2\n\n"
    "Exit codes: 0 every gate passes, 1 one does not, 2 the folder is none of a job."
)

Baseline = Annotated[
    Path | None,
    typer.Option(help="Folder of the legacy recipe's job, for the gates parity and throughput."),
]


def launch(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, see docs/recipes.md.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="As of train; also job.KEY and gates.KEY."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps in place of the recipe's.", min=1)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write the job's folder and submit nothing.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The job's folder, which all nodes see; default: jobs/RECIPE."),
    ] = None,
    site: Annotated[Path | None, typer.Option(help="YAML file with the cluster's options.")] = None,
    baseline: Baseline = None,
    start_timeout: Annotated[
        float, typer.Option(help="Seconds in which the job must get its nodes.", min=1)
    ] = 24 * 3600.0,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for the job's end and judge it.")
    ] = True,
) -> None:
    """Run a recipe on Slurm, and judge its result."""
    console = new_console()
    try:
        code = _launch(
            console, recipe, overrides or [], steps, out or Path("jobs") / recipe, site, baseline,
            start_timeout, dry_run, follow,
        )  # fmt: skip
    except ConfigError as error:
        fail(f"launch: {error}")
    except KeyboardInterrupt:
        fail("launch: interrupted; the job goes on, see squeue", ExitCode.INTERRUPTED)
    raise typer.Exit(code)


def _launch(
    console: Console,
    name: str,
    overrides: list[str],
    steps: int | None,
    out: Path,
    site_file: Path | None,
    baseline: Path | None,
    start_timeout: float,
    dry_run: bool,
    follow: bool,
) -> ExitCode:
    from rlconform.launch import job_folder, slurm  # noqa: PLC0415 - imports torch
    from rlconform.launch.recipes import load_recipe  # noqa: PLC0415
    from rlconform.launch.sites import read_site  # noqa: PLC0415

    recipe, site = load_recipe(name, overrides, steps), read_site(site_file)
    check_writable(out)
    if baseline is not None:
        job_folder.JobFolder(baseline.absolute()).record()  # not only once the job has ended
    folder = job_folder.create(recipe, overrides, site, out)
    job = recipe.job
    runs = job.runs(recipe.steps)
    console.print(
        f"{name}: {recipe.steps} steps in {runs} run{'s' * (runs != 1)} on {job.nodes} nodes x "
        f"{job.gpus_per_node} GPUs, at most {recipe.gpu_hours:g} GPU hours",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"folder {folder.path}", highlight=False, soft_wrap=True)
    if dry_run:
        sys.stdout.write(folder.script.read_text("utf-8"))
        return ExitCode.SUCCESS
    if folder.complete:
        console.print("the run is complete: nothing was submitted", highlight=False)
        return _judged(console, folder, None, baseline)
    jobs: list[str] = []
    for _ in range(1 if site.requeue else runs):
        jobs.append(slurm.submit(folder.script, after=jobs[-1] if jobs else None))
    console.print(f"submitted {', '.join(jobs)}", highlight=False)
    if not follow:
        return ExitCode.SUCCESS
    status = None
    try:
        for status in slurm.follow(jobs, start_timeout):
            words = [status.job, status.state, status.reason, status.nodes]
            console.print(" ".join(filter(None, words)), highlight=False)
    except slurm.JobsNotStarted as error:
        console.print(escape(str(error)), highlight=False, soft_wrap=True)
        status = error.status
    return _judged(console, folder, status, baseline)


def judge(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A job's folder.")],
    baseline: Baseline = None,
) -> None:
    """Judge the run in a job's folder again, without Slurm."""
    from rlconform.launch.job_folder import JobFolder  # noqa: PLC0415 - imports torch

    try:
        code = _judged(new_console(), JobFolder(folder.absolute()), None, baseline)
    except ConfigError as error:
        fail(f"judge: {error}")
    raise typer.Exit(code)


def _judged(
    console: Console, folder: JobFolder, status: JobStatus | None, baseline: Path | None
) -> ExitCode:
    from rlconform.launch.job_folder import JobFolder  # noqa: PLC0415 - imports torch
    from rlconform.launch.judge import judge_job, last_status, write_verdict  # noqa: PLC0415

    if baseline is not None:
        folder.keep_baseline(JobFolder(baseline.absolute()))
    verdict = judge_job(folder, status or last_status(folder))
    write_verdict(verdict, folder)
    console.print(_table(verdict))
    word = "PASS" if verdict.passed else "FAIL"
    console.print(f"{word}: {folder.path}/verdict.json", highlight=False, soft_wrap=True)
    return ExitCode.SUCCESS if verdict.passed else ExitCode.FAILURE


def _table(verdict: JobVerdict) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "Gate", "Message"):
        table.add_column(heading, overflow="fold")
    for gate in verdict.gates:
        word = "[green]pass[/]" if gate.passed else f"[bold red]{gate.outcome.upper()}[/]"
        table.add_row(word, escape(gate.gate), escape(gate.message))
    return table

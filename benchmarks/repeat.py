"""Whether a plane gets the same verdict every time: certify it again and again, and compare.

    python benchmarks/repeat.py memory ray_store                     20 runs of each
    python benchmarks/repeat.py transfer_queue/simple --runs 5 --seeds

A verdict that changes from run to run is a flake: of the plane, or of a check. Exit status 1 where
any requirement's outcome, or the completeness of a report, is not the same in all runs.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Certification:
    """What one run came to: exit status, outcome by requirement, seconds, evidence."""

    exit_code: int
    outcomes: dict[str, str]
    seconds: float
    evidence: dict[str, str]


def certify(target: str, level: str | None, seed: int) -> Certification:
    """Run ``rlconform certify`` in a process of its own, and read its report."""
    with tempfile.TemporaryDirectory(prefix="rlr-") as out:
        command = [sys.executable, "-m", "rlconform", "certify", target, "--out", out]
        command += ["--seed", str(seed), *(["--level", level] if level else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        report = Path(out) / "report.json"
        if not report.exists():
            raise RuntimeError(f"{target}: no report: {done.stdout}{done.stderr}")
        said: dict[str, Any] = json.loads(report.read_text("utf-8"))
    rows = said["requirements"]
    return Certification(
        done.returncode,
        {row["id"]: row["outcome"] for row in rows}
        | {"(complete)": str(said["footer"]["complete"])},
        said["header"]["seconds"]["total"],
        {row["id"]: row["reason"] for row in rows if row["outcome"] not in {"PASS"}},
    )


def differing(runs: Sequence[Certification]) -> dict[str, Counter[str]]:
    """Requirements whose outcome is not the same in all runs, with how often each came."""
    names = dict.fromkeys(name for run in runs for name in run.outcomes)
    counts = {name: Counter(run.outcomes.get(name, "absent") for run in runs) for name in names}
    return {name: count for name, count in counts.items() if len(count) > 1}


def main(
    targets: Annotated[list[str], typer.Argument(help="Planes as certify takes them.")],
    runs: Annotated[int, typer.Option(help="Certifications of each.", min=2)] = 20,
    level: Annotated[str | None, typer.Option(help="As certify's --level.")] = None,
    seeds: Annotated[bool, typer.Option("--seeds", help="Another seed in each run.")] = False,
) -> None:
    """Certify each plane many times and show what differs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Plane", "Runs", "Exit codes", "Seconds (median, min, max)", "Not the same"):
        table.add_column(heading)
    flaky = False
    for target in targets:
        done: list[Certification] = []
        for number in range(runs):
            done.append(certify(target, level, number if seeds else 0))
            last = done[-1]
            broken = {
                n: r for n, r in last.evidence.items() if last.outcomes[n] != "NOT_APPLICABLE"
            }
            console.print(
                f"{target} {number + 1}/{runs}: exit {last.exit_code}, {last.seconds:.0f} s "
                f"{broken or ''}",
                highlight=False,
                markup=False,
            )
        different = differing(done)
        flaky = flaky or bool(different)
        took = [run.seconds for run in done]
        table.add_row(
            target,
            str(runs),
            ", ".join(f"{code} x {n}" for code, n in Counter(r.exit_code for r in done).items()),
            f"{statistics.median(took):.0f}, {min(took):.0f}, {max(took):.0f}",
            "; ".join(f"{name}: {dict(count)}" for name, count in different.items()) or "nothing",
        )
    console.print(table)
    raise typer.Exit(int(flaky))


if __name__ == "__main__":
    typer.run(main)

"""Whether a plane gets the same verdict every time: certify it again and again, and compare.

    python benchmarks/repeat.py memory ray_store                     20 runs of each
    python benchmarks/repeat.py transfer_queue/simple --runs 5 --seeds
    python benchmarks/repeat.py ray_store --runs 5 --keep benchmarks/repeats.jsonl

With ``--keep`` each run is noted in a file, with the state of the code that it judged, and runs of
that state that stand there already count: twenty runs in a row need not fit in one evening.

A verdict that changes from run to run is a flake: of the plane, or of a check. Exit status 1 where
any requirement's outcome, or the completeness of a report, is not the same in all runs.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
#: What a verdict depends on.
JUDGES = (
    "suites/unit/contract",
    "suites/unit/properties",
    "suites/unit/stateful",
    "suites/functional/contract",
    "suites/functional/histories",
    "rlconform/contract",
    "rlconform/wire",
    "rlconform/plane",
    "rlconform/backends",
    "rlconform/grpo/filters.py",
    "rlconform/grpo/legacy.py",
    "rlconform/grpo/__init__.py",
    "rlconform/certify",
    "ci/constraints.txt",
)

console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Certification:
    """What one run came to: exit status, what did not pass and how much did, seconds, evidence."""

    target: str
    code: str
    exit_code: int
    outcomes: dict[str, str]
    seconds: float
    evidence: dict[str, str]


def certify(target: str, level: str | None, seed: int) -> Certification:
    """Run ``rlconform certify`` in a process of its own, and read its report.

    A run without one, since the plane did not start, is an outcome like others.
    """
    with tempfile.TemporaryDirectory(prefix="rlr-") as out:
        command = [sys.executable, "-m", "rlconform", "certify", target, "--out", out]
        command += ["--seed", str(seed), *(["--level", level] if level else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        report = Path(out) / "report.json"
        if not report.exists():
            said_instead = {"(no report)": done.stdout + done.stderr}
            return Certification(
                target, code_state(), done.returncode, {"(no report)": "yes"}, 0.0, said_instead
            )
        said: dict[str, Any] = json.loads(report.read_text("utf-8"))
    rows = said["requirements"]
    return Certification(
        target,
        code_state(),
        done.returncode,
        {row["id"]: row["outcome"] for row in rows if row["outcome"] != "PASS"}
        | {"(passed)": str(sum(row["outcome"] == "PASS" for row in rows))}
        | {"(complete)": str(said["footer"]["complete"])},
        said["header"]["seconds"]["total"],
        {row["id"]: row["reason"] for row in rows if row["outcome"] not in {"PASS"}},
    )


def code_state() -> str:
    """Digest of all that makes a verdict: the checks, the kit and the planes."""
    digest = hashlib.sha256()
    for folder in JUDGES:
        whole = ROOT / folder
        for path in [whole] if whole.is_file() else sorted(whole.rglob("*")):
            if path.suffix in {".py", ".toml", ".txt"} and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def kept(path: Path | None, target: str) -> list[Certification]:
    """The target's runs in the file, by the code as it is now, oldest first."""
    if path is None or not path.exists():
        return []
    lines = path.read_text("utf-8").splitlines()
    runs = [Certification(**json.loads(line)) for line in lines]
    return [run for run in runs if (run.target, run.code) == (target, code_state())]


def differing(runs: Sequence[Certification]) -> dict[str, Counter[str]]:
    """Requirements whose outcome is not the same in all runs, with how often each came."""
    names = dict.fromkeys(name for run in runs for name in run.outcomes)
    counts = {name: Counter(run.outcomes.get(name, "PASS") for run in runs) for name in names}
    return {name: count for name, count in counts.items() if len(count) > 1}


def main(
    targets: Annotated[list[str], typer.Argument(help="Planes as certify takes them.")],
    runs: Annotated[int, typer.Option(help="Certifications of each.", min=2)] = 20,
    level: Annotated[str | None, typer.Option(help="As certify's --level.")] = None,
    seeds: Annotated[bool, typer.Option("--seeds", help="Another seed in each run.")] = False,
    keep: Annotated[
        Path | None, typer.Option(help="File of runs: those noted count, new ones are added.")
    ] = None,
) -> None:
    """Certify each plane many times and show what differs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Plane", "Runs", "Exit codes", "Seconds (median, min, max)", "Not the same"):
        table.add_column(heading)
    flaky = False
    for target in targets:
        done = kept(keep, target)
        for number in range(len(done), runs):
            done.append(certify(target, level, number if seeds else 0))
            last = done[-1]
            if keep is not None:
                with keep.open("a", encoding="utf-8") as notes:
                    notes.write(json.dumps(asdict(last)) + "\n")
            broken = {
                n: r for n, r in last.evidence.items() if last.outcomes.get(n) != "NOT_APPLICABLE"
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

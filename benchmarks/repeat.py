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
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from again import ROOT, Noted, differing, kept, note, say, show

#: What a verdict depends on.
JUDGES = (
    "suites/unit/contract",
    "suites/unit/properties",
    "suites/unit/properties",
    "suites/functional/contract",
    "suites/functional/concurrency",
    "rlconform/contract",
    "rlconform/wire",
    "rlconform/plane",
    "rlconform/backends",
    "rlconform/grpo/rollout/filters.py",
    "rlconform/grpo/trainers/legacy_sharding.py",
    "rlconform/grpo/__init__.py",
    "rlconform/certify",
    "ci/constraints.txt",
)


@dataclass(frozen=True)
class Certification(Noted):
    """One certification: what did not pass and how much did, with what was said of it."""

    target: str
    outcomes: dict[str, str]
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
            return Certification(
                code=code_state(),
                exit_code=done.returncode,
                seconds=0.0,
                target=target,
                outcomes={"(no report)": "yes"},
                evidence={"(no report)": done.stdout + done.stderr},
            )
        said: dict[str, Any] = json.loads(report.read_text("utf-8"))
    rows = said["requirements"]
    return Certification(
        code=code_state(),
        exit_code=done.returncode,
        seconds=said["header"]["seconds"]["total"],
        target=target,
        outcomes={row["id"]: row["outcome"] for row in rows if row["outcome"] != "PASS"}
        | {"(passed)": str(sum(row["outcome"] == "PASS" for row in rows))}
        | {"(complete)": str(said["footer"]["complete"])},
        evidence={row["id"]: row["reason"] for row in rows if row["outcome"] != "PASS"},
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
    done: dict[str, list[Certification]] = {}
    for target in targets:
        its = done[target] = kept(keep, Certification, target=target, code=code_state())
        for number in range(len(its), runs):
            its.append(last := certify(target, level, number if seeds else 0))
            note(keep, last)
            broken = {
                n: r for n, r in last.evidence.items() if last.outcomes.get(n) != "NOT_APPLICABLE"
            }
            say(
                f"{target} {number + 1}/{runs}: exit {last.exit_code}, {last.seconds:.0f} s "
                f"{broken or ''}"
            )
    flakes = {
        target: differing([run.outcomes for run in its], "PASS") for target, its in done.items()
    }
    show("Plane", {target: (its, flakes[target]) for target, its in done.items()})
    raise typer.Exit(int(any(flakes.values())))


if __name__ == "__main__":
    typer.run(main)

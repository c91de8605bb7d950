"""Whether the nox sessions come out the same every time, the kit's own tests included.

    python benchmarks/sessions.py --runs 3
    python benchmarks/sessions.py --runs 20 --keep benchmarks/sessions.jsonl

A run is ``nox -s unit functional``, its tests in another random order each time. What each test
came to is read from pytest's own record. With ``--keep`` runs are noted in a file, with the state
of the code, and those of this state that stand there count: twenty need not fit in one evening.

Exit status 1 where a run was not green, or any test's outcome is not the same in all runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SESSIONS = ("unit", "functional")
#: What a session's outcome depends on: benchmarks may change between two runs in a row.
TRIED = (
    "rlconform",
    "suites",
    "fixtures",
    "reference_configs",
    "ci",
    "docs",
    "noxfile.py",
    "pyproject.toml",
    "README.md",
)
SEED = re.compile(r"--random-order-seed=(\d+)")

console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Run:
    """One session once: when, how long (seconds), which order, and what the tests came to."""

    session: str
    code: str
    commit: str
    began: str
    seconds: float
    load: float
    seed: str
    exit_code: int
    passed: int
    tests: str
    others: dict[str, str]


def git(*words: str) -> str:
    """What git says of this checkout."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def code_state() -> str:
    """Digest of what the sessions try; refused where a file of it is not committed."""
    if changed := git("status", "--porcelain", "--", *TRIED):
        raise typer.BadParameter(f"commit first, a run is noted by its commit:\n{changed}")
    return hashlib.sha256(git("ls-tree", "HEAD", *TRIED).encode()).hexdigest()[:12]


def outcomes(record: Path) -> Iterator[tuple[str, str]]:
    """Each test of pytest's record (JUnit XML) with what it came to."""
    for case in ElementTree.parse(record).iter("testcase"):
        marks = {child.tag for child in case} & {"failure", "error", "skipped"}
        yield f"{case.get('classname')}::{case.get('name')}", " ".join(sorted(marks)) or "passed"


def run(session: str, code: str, logs: Path | None) -> Run:
    """Run the session in a process of its own and read what came."""
    began, start = datetime.now(UTC), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rlr-") as out:
        record = Path(out) / "record.xml"
        command = [sys.executable, "-m", "nox", "-s", session, "--", f"--junitxml={record}"]
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        came = dict(outcomes(record)) if record.exists() else {}
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
        (logs / f"{began:%Y%m%dT%H%M%S}-{session}.log").write_text(done.stdout, "utf-8")
    seed = SEED.search(done.stdout)
    return Run(
        session,
        code,
        git("rev-parse", "--short", "HEAD"),
        f"{began:%Y-%m-%d %H:%M}",
        round(time.monotonic() - start, 1),
        round(os.getloadavg()[1], 1),
        seed.group(1) if seed else "",
        done.returncode,
        sum(outcome == "passed" for outcome in came.values()),
        hashlib.sha256("\n".join(sorted(came)).encode()).hexdigest()[:12],
        {name: outcome for name, outcome in came.items() if outcome != "passed"},
    )


def kept(path: Path | None, session: str, code: str) -> list[Run]:
    """The session's runs in the file, by the code as it is now, oldest first."""
    if path is None or not path.exists():
        return []
    runs = [Run(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    return [run for run in runs if (run.session, run.code) == (session, code)]


def differing(runs: Sequence[Run]) -> list[str]:
    """What is not the same in all runs, a sentence each: tests that came or went, outcomes."""
    said = []
    if len({run.tests for run in runs}) > 1:
        said.append("not the same tests in all runs")
    for name in dict.fromkeys(name for run in runs for name in run.others):
        count = Counter(run.others.get(name, "passed") for run in runs)
        if len(count) > 1:
            said.append(f"{name}: {', '.join(f'{what} x {n}' for what, n in count.items())}")
    return said


def main(
    runs: Annotated[int, typer.Option(help="Runs of both sessions.", min=2)] = 20,
    keep: Annotated[
        Path | None, typer.Option(help="File of runs: those noted count, new ones are added.")
    ] = None,
    logs: Annotated[Path | None, typer.Option(help="Folder for what each session printed.")] = None,
) -> None:
    """Run both sessions many times and show what differs."""
    code = code_state()
    done = {session: kept(keep, session, code) for session in SESSIONS}
    for number in range(min(map(len, done.values())), runs):
        for session in SESSIONS:
            if len(done[session]) > number:
                continue
            last = run(session, code, logs)
            done[session].append(last)
            if keep is not None:
                with keep.open("a", encoding="utf-8") as notes:
                    notes.write(json.dumps(asdict(last)) + "\n")
            console.print(
                f"{session} {number + 1}/{runs}: exit {last.exit_code}, {last.passed} passed, "
                f"{last.seconds:.0f} s {last.others or ''}",
                highlight=False,
                markup=False,
            )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Session", "Runs", "Exit codes", "Passed", "Seconds (median, min, max)"):
        table.add_column(heading)
    table.add_column("Not the same")
    for session, its in done.items():
        took = [one.seconds for one in its]
        table.add_row(
            session,
            str(len(its)),
            ", ".join(f"{code} x {n}" for code, n in Counter(r.exit_code for r in its).items()),
            ", ".join(str(n) for n in sorted({one.passed for one in its})),
            f"{statistics.median(took):.0f}, {min(took):.0f}, {max(took):.0f}",
            "; ".join(differing(its)) or "nothing",
        )
    console.print(table)
    steady = not any(differing(its) or any(r.exit_code for r in its) for its in done.values())
    raise typer.Exit(int(not steady))


if __name__ == "__main__":
    typer.run(main)

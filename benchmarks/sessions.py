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
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer
from again import ROOT, Noted, counted, differing, kept, note, say, show

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


@dataclass(frozen=True)
class Run(Noted):
    """One session once: when, in which order, and what its tests came to."""

    session: str
    commit: str
    began: str
    load: float
    seed: str
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
        code=code,
        exit_code=done.returncode,
        seconds=round(time.monotonic() - start, 1),
        session=session,
        commit=git("rev-parse", "--short", "HEAD"),
        began=f"{began:%Y-%m-%d %H:%M}",
        load=round(os.getloadavg()[1], 1),
        seed=seed.group(1) if seed else "",
        passed=sum(outcome == "passed" for outcome in came.values()),
        tests=hashlib.sha256("\n".join(sorted(came)).encode()).hexdigest()[:12],
        others={name: outcome for name, outcome in came.items() if outcome != "passed"},
    )


def flakes(runs: Sequence[Run]) -> list[str]:
    """What is not the same in all runs, a sentence each: tests that came or went, outcomes."""
    said = differing([run.others for run in runs], "passed")
    if len({run.tests for run in runs}) > 1:
        said.insert(0, "not the same tests in all runs")
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
    done = {session: kept(keep, Run, session=session, code=code) for session in SESSIONS}
    for number in range(min(map(len, done.values())), runs):
        for session, its in done.items():
            if len(its) > number:
                continue
            its.append(last := run(session, code, logs))
            note(keep, last)
            say(
                f"{session} {number + 1}/{runs}: exit {last.exit_code}, {last.passed} passed, "
                f"{last.seconds:.0f} s {last.others or ''}"
            )
    different = {session: flakes(its) for session, its in done.items()}
    show("Session", {session: (its, different[session]) for session, its in done.items()})
    for session, its in done.items():
        say(f"{session}: {counted(f'{one.passed} passed' for one in its)}")
    green = not any(one.exit_code for its in done.values() for one in its)
    raise typer.Exit(int(any(different.values()) or not green))


if __name__ == "__main__":
    typer.run(main)

"""What ``repeat.py`` and ``sessions.py`` share: runs noted in a file, and what they came to.

Something is flaky where two of its runs do not come to the same.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent

console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Noted:
    """One run of something, by a state of the code: its exit status, and how long (seconds)."""

    code: str
    exit_code: int
    seconds: float


R = TypeVar("R", bound=Noted)


def kept(path: Path | None, kind: type[R], **same: str) -> list[R]:
    """The runs in the file whose fields are the same as those given, oldest first."""
    if path is None or not path.exists():
        return []
    runs = [kind(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    return [run for run in runs if all(getattr(run, name) == it for name, it in same.items())]


def note(path: Path | None, run: Noted) -> None:
    """Add the run to the file at once: what comes after may not end."""
    if path is not None:
        with path.open("a", encoding="utf-8") as notes:
            notes.write(json.dumps(asdict(run)) + "\n")


def counted(things: Iterable[object]) -> str:
    """Each thing with how often it is there: ``0 x 19, 1 x 1``."""
    return ", ".join(f"{thing} x {n}" for thing, n in Counter(things).items())


def differing(outcomes: Sequence[Mapping[str, str]], otherwise: str) -> list[str]:
    """Say of each thing whose outcome is not the same in all runs how often each outcome came.

    A run that does not name a thing has the outcome ``otherwise`` for it.
    """
    names = dict.fromkeys(name for run in outcomes for name in run)
    came = {name: [run.get(name, otherwise) for run in outcomes] for name in names}
    return [f"{name}: {counted(each)}" for name, each in came.items() if len(set(each)) > 1]


def say(text: str) -> None:
    """Print a line as it is."""
    console.print(text, highlight=False, markup=False)


def show(what: str, rows: Mapping[str, tuple[Sequence[Noted], Sequence[str]]]) -> None:
    """Print a row for each thing: its runs, and what is not the same in all of them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (what, "Runs", "Exit codes", "Seconds (median, min, max)", "Not the same"):
        table.add_column(heading)
    for name, (runs, different) in rows.items():
        took = [run.seconds for run in runs]
        table.add_row(
            name,
            str(len(runs)),
            counted(run.exit_code for run in runs),
            f"{statistics.median(took):.0f}, {min(took):.0f}, {max(took):.0f}",
            "; ".join(different) or "nothing",
        )
    console.print(table)

"""How often the checks of races catch planted races, and that they leave right planes alone.

    python benchmarks/kill_rates.py                         every race, 20 seeds each
    python benchmarks/kill_rates.py --only two_claimers --seeds 5
    python benchmarks/kill_rates.py --right transfer_queue/simple --seeds 5

For each mutant, the checks of the requirements that must catch it run once for every seed, on one
plane that stays open. A kill is a failure for the mutant's own reason; what our own error ends is
none.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from rich.console import Console
from rich.table import Table

from rlconform.certify.checked import check_id
from rlconform.mutants import Mutant, mutants_in, races, races_threads
from rlconform.resources import resource_dir

#: Where the checks of races are.
CHECKS = ("functional/histories", "unit/contract/test_life.py")


class Turns:
    """A pytest plugin: each check once for every seed; keeps what came of each turn."""

    def __init__(self, requirements: Sequence[str], seeds: int) -> None:
        self._requirements, self._seeds = requirements, seeds
        self.turns: list[dict[str, Any]] = []

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each check a parameter that it doesn't know of."""
        metafunc.fixturenames.append("turn")
        metafunc.parametrize("turn", range(self._seeds))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the checks asked for, of those that play roles."""
        items[:] = [
            item
            for item in items
            if (mark := item.get_closest_marker("requirement")) is not None
            and (not self._requirements or mark.args[0] in self._requirements)
            and {"stage", "threads"} & set(getattr(item, "fixturenames", ()))
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Start from this turn's seed."""
        item.config.option.seed = item.callspec.params["turn"]  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Note how the call ended."""
        report = yield
        if call.when == "call" or call.excinfo is not None:
            mark = item.get_closest_marker("requirement")
            error = call.excinfo.value if call.excinfo else None
            self.turns.append(
                {
                    "requirement": mark.args[0] if mark else "",
                    "seed": item.callspec.params["turn"],  # type: ignore[attr-defined]
                    "check": check_id(item).partition("[")[0],
                    "seconds": call.duration,
                    "failed": isinstance(error, AssertionError),
                    "error": "" if error is None else f"{type(error).__name__}: {error}",
                }
            )
        return report


def run_turns(
    target: str, level: str, requirements: Sequence[str], seeds: int, out: Path
) -> list[dict[str, Any]]:
    """The turns of one target, run in a process of its own."""
    request = json.dumps([target, level, list(requirements), seeds, str(out)])
    subprocess.run(
        [sys.executable, __file__, "--child", request],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    turns: list[dict[str, Any]] = json.loads(out.read_text("utf-8")) if out.exists() else []
    return turns


def be_child(request: str) -> None:
    """Run pytest with the plugin and write down the turns."""
    target, level, requirements, seeds, out = json.loads(request)
    plugin = Turns(requirements, seeds)
    files = [str(resource_dir("suites") / check) for check in CHECKS]
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "--target", target, "--level", level]
    pytest.main([*files[: 1 if level != "unit" else 2], *options], plugins=[plugin])
    Path(out).write_text(json.dumps(plugin.turns), "utf-8")


def main(
    seeds: Annotated[int, typer.Option(help="Turns of each check.", min=1)] = 20,
    only: Annotated[str, typer.Option(help="Mutants whose names contain this.")] = "",
    right: Annotated[str, typer.Option(help="A right plane instead: every failure counts.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the turns here.")] = None,
    child: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure kill rates."""
    if child:
        be_child(child)
        return
    started = time.monotonic()
    table = Table("Plane", "Requirement", "Failed", "For its reason", "Kills by check", "s a check")
    told: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for spec, mutant in _chosen(only, right):
            wanted = mutant.fails if isinstance(mutant, Mutant) else ()
            level = mutant.level if isinstance(mutant, Mutant) else "functional"
            out = Path(folder) / f"{len(told)}.json"
            told[spec] = run_turns(spec, level, wanted, seeds, out)
            _add_rows(table, spec, mutant, told[spec])
    Console(width=160).print(table)
    print(f"{seeds} seeds, {time.monotonic() - started:.0f} s, on {platform.platform()}")
    if json_file is not None:
        json_file.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


def _chosen(only: str, right: str) -> list[tuple[str, Mutant | None]]:
    if right:
        return [(right, None)]
    named = [*mutants_in(races), *mutants_in(races_threads)]
    return [(spec, mutant) for spec, mutant in named if only in mutant.name]


def _add_rows(
    table: Table, spec: str, mutant: Mutant | None, turns: Sequence[dict[str, Any]]
) -> None:
    """One row for each requirement: a seed is a kill if any of its checks fails."""
    fragment = mutant.evidence if mutant else ""
    for requirement in dict.fromkeys(turn["requirement"] for turn in turns):
        mine = [turn for turn in turns if turn["requirement"] == requirement]
        failed = [turn for turn in mine if turn["failed"]]
        kills = [turn for turn in failed if fragment in turn["error"]]
        by = Counter(turn["check"].rpartition("::")[2] for turn in kills)
        seconds = [turn["seconds"] for turn in mine]
        table.add_row(
            spec.rpartition(":")[2],
            requirement,
            f"{_seeds(failed)} of {_seeds(mine)}",
            f"{_seeds(kills)} of {_seeds(mine)}",
            "\n".join(f"{count} {check}" for check, count in by.items()),
            f"{statistics.median(seconds):.1f}",
        )
    if not turns:
        table.add_row(spec, "", "nothing ran", "", "", "")


def _seeds(turns: Sequence[dict[str, Any]]) -> int:
    return len({turn["seed"] for turn in turns})


if __name__ == "__main__":
    typer.run(main)

"""Launch the recipes of a list, one after the other, and require that each passes its gates.

    python ci/run_suite.py SUITE --site SITE --out FOLDER

A recipe through a plane comes after its legacy recipe, whose run is its baseline. Every recipe is
launched, also after one that fails; each must leave a verdict, and the exit code is 1 if one did
not pass.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rlconform.launch.compare_verdicts import is_verdict, read_verdict
from rlconform.launch.names import parse_name
from rlconform.launch.suites import load_suites


def launch_order(recipes: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return the recipes with their baselines, those of the legacy trainer first."""
    ordered = sorted(recipes, key=lambda name: parse_name(name).plane is not None)
    legacy = {name for name in recipes if parse_name(name).plane is None}
    return [(name, baseline_of(name, legacy)) for name in ordered]


def baseline_of(name: str, legacy: set[str]) -> str | None:
    """Return the legacy recipe of a recipe through a plane, if it is in the list."""
    plane = parse_name(name).plane
    base = name.replace(f"-{plane}", "") if plane else name
    return base if base != name and base in legacy else None


def main(arguments: Sequence[str]) -> int:
    """Launch the recipes; return the exit code."""
    parser = argparse.ArgumentParser(prog="run_suite.py")
    parser.add_argument("suite")
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    suites = {suite.name: suite.config for suite in load_suites()}
    if asked.suite not in suites:
        parser.error(f"no list {asked.suite!r}: one of {', '.join(suites)}")
    failed = []
    for name, baseline in launch_order(suites[asked.suite].recipes):
        folder = asked.out / name
        command = ["rlconform", "launch", name, "--site", str(asked.site), "--out", str(folder)]
        command += ["--baseline", str(asked.out / baseline)] if baseline else []
        code = subprocess.run(command, check=False).returncode
        if code or not is_verdict(folder) or not read_verdict(folder).passed:
            failed.append(f"{name} ended with {code}")
    sys.stdout.write("".join(f"::error::{line}\n" for line in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Prints the trials of the self-tests that went wrong: the last lines of a CI run that failed.

What a session prints in its middle is cut from logs that keep the beginning and the end only.
Run it: ``python ci/failed_trials.py rlconform-self-test``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rlconform.selftest.classify import GOOD


def wrong_trials(matrix: dict[str, Any]) -> list[str]:
    """Return a line for each trial whose outcome is wrong, planes first, then training runs."""
    trials = [*matrix["trials"], *matrix["trainer_trials"]]
    return [
        f"{one['kind']} {one['name']}: {one['detail'] or 'no detail'}; broken: {one['broken']}"
        for one in trials
        if one["kind"] not in GOOD
    ]


def main(folder: Path) -> None:
    """Print the wrong trials of each self-test below ``folder``."""
    for path in sorted(folder.rglob("self-test.json")):
        for line in wrong_trials(json.loads(path.read_text("utf-8"))):
            sys.stdout.write(f"{path}: {line}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

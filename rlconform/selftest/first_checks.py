"""``first_checks``: the checks that killed each mutant last time; the gate tries them first.

    self-test.json of a gate ── python -m rlconform.selftest.first_checks ──▶ first_checks.json

A trial ends as soon as its requirements have shown enough, so a good start saves half of its time.
Only the order changes: if these checks pass, all others of the requirements run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

#: Mutant -> ids of its first checks.
FILE = Path(__file__).with_suffix(".json")


@cache
def first_checks() -> Mapping[str, Sequence[str]]:
    """Return the ids of the checks to begin with, of each mutant that the gate has tried."""
    known: dict[str, list[str]] = json.loads(FILE.read_text("utf-8"))
    return known


def renewed(
    known: Mapping[str, Sequence[str]], report: Mapping[str, object], mutants: Sequence[str]
) -> dict[str, list[str]]:
    """Return ``known`` with what the report of a self-test's gate found, of these mutants only."""
    trials = report["trials"]
    assert isinstance(trials, list)
    found = {one["name"]: one["killers"] for one in trials if one["killers"]}
    return {name: list(ids) for name, ids in sorted({**known, **found}.items()) if name in mutants}


def main(arguments: Sequence[str]) -> None:
    """Renew the file from ``self-test.json`` of a gate; the only argument is its path."""
    from rlconform.mutants.registry import all_mutants  # noqa: PLC0415 - imports every mutant

    (path,) = arguments
    report = json.loads(Path(path).read_text("utf-8"))
    found = renewed(first_checks(), report, list(all_mutants()))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(ids)}" for name, ids in found.items())
    FILE.write_text(f"{{\n{lines}\n}}\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

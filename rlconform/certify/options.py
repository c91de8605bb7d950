"""``CertifyOptions``: which checks a certification runs, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from rlconform.contract import Level

#: Folders of the contract checks, below ``suites/``.
CHECKS = (
    "unit/contract",
    "unit/properties",
    "unit/interplay",
    "functional/contract",
    "functional/concurrency",
    "functional/interplay",
    "e2e/contract",
    "durability/contract",
)


@dataclass(frozen=True)
class CertifyOptions:
    """The options of a certification."""

    spec: str  # the target as the user named it
    config: Mapping[str, Any] = field(default_factory=dict)  # empty for the target's default
    level: Level | None = None  # ``None`` for the level that the target declares
    select: str = ""  # pytest ``-k`` expression, or ""
    check_timeout: float | None = None  # seconds per check in place of the target's
    seed: int = 0  # start of the generated examples; the same seed generates the same examples
    checks: Sequence[str] = CHECKS  # folders and files below ``suites/`` that hold the checks
    requirements: Sequence[str] = ()  # only checks of these, or all
    only: Sequence[str] = ()  # only the checks of these ids, or all
    why_only: str = ""  # what these checks are, for the report
    telling_first: bool = False  # whether to begin with a short check of each requirement
    first: Sequence[str] = ()  # ids of the checks to begin with
    turns: int = 1  # times that the checks run, each from the next seed, until one is broken
    effort: float = 1.0  # share of the usual number of generated examples
    jobs: int = 1  # test processes at a time, each with its own plane and a share of the checks
    spread: bool = False  # whether the processes of checks are on different hosts of a joined Ray
    races: bool = True  # whether to run checks that wait for an unlucky interleaving of threads
    large_rows: bool = False  # whether to try rows of gigabytes
    max_failures: int | None = None  # broken checks of MUSTs after which the run stops
    #: For trials of mutants only: requirement -> a part of the text of the failure after which no
    #: more of its checks run. A certification runs them all.
    enough: Mapping[str, str] = field(default_factory=dict)
    scripts: bool = True  # whether to write scripts that repeat failures, and calls as source
    at_scale: bool = True  # whether checks also run on a used plane, and with blocks of rows
    max_hangs: int = 3  # checks in which a kind of call may hang before it is given up; 0: no limit

    @property
    def selection(self) -> str:
        """What the user selected, in words; "" for all checks."""
        return " and ".join(filter(None, [self.select, self.why_only]))

    def pytest_arguments(self) -> list[str]:
        """Return these options, except ``only``, as arguments for pytest, which runs the checks."""
        values = {
            "--rlconform-target": self.spec,
            "--rlconform-target-config": json.dumps(dict(self.config)),
            "--rlconform-seed": self.seed,
            "--rlconform-turns": self.turns,
            "--rlconform-effort": self.effort,
            "--rlconform-requirements": ",".join(self.requirements),
            "--rlconform-check-timeout": self.check_timeout,
            "--rlconform-enough": json.dumps(dict(self.enough)) if self.enough else None,
            "--rlconform-first": json.dumps(list(self.first)) if self.first else None,
            "--rlconform-level": self.level,
            "-k": self.select,
        }
        given = {name: str(value) for name, value in values.items() if value not in {None, ""}}
        switches = {
            "--rlconform-no-races": not self.races,
            "--rlconform-telling-first": self.telling_first,
            "--rlconform-spread": self.spread,
            "--rlconform-large-rows": self.large_rows,
            "--rlconform-no-scripts": not self.scripts,
            "--rlconform-not-at-scale": not self.at_scale,
        }
        return [*chain(*given.items()), *(name for name, is_on in switches.items() if is_on)]

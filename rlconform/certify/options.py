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
    "functional/contract",
    "functional/concurrency",
    "functional/interplay",
    "e2e/contract",
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
    turns: int = 1  # times that the checks run, each from the next seed, until one is broken
    effort: float = 1.0  # share of the usual number of generated examples
    spread: bool = False  # whether the processes of checks are on different hosts of a joined Ray
    races: bool = True  # whether to run checks that wait for an unlucky interleaving of threads
    max_failures: int | None = None  # broken checks of MUSTs after which the run stops
    max_hangs: int = 3  # checks in which a kind of call may hang before it is given up; 0: no limit

    def pytest_arguments(self) -> list[str]:
        """Return these options, except ``only``, as arguments for pytest, which runs the checks."""
        values = {
            "--target": self.spec,
            "--target-config": json.dumps(dict(self.config)),
            "--seed": self.seed,
            "--turns": self.turns,
            "--effort": self.effort,
            "--requirements": ",".join(self.requirements),
            "--check-timeout": self.check_timeout,
            "--level": self.level,
            "-k": self.select,
        }
        given = {name: str(value) for name, value in values.items() if value not in {None, ""}}
        flags = {"--no-races": not self.races, "--spread": self.spread}
        return [*chain(*given.items()), *(flag for flag, is_set in flags.items() if is_set)]

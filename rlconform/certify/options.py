"""``CertifyOptions``: what a certification runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlconform.contract import Level

#: Folders of the contract checks, below ``suites/``.
CHECKS = (
    "unit/contract",
    "unit/properties",
    "functional/contract",
    "functional/concurrency",
    "e2e/contract",
)


@dataclass(frozen=True)
class CertifyOptions:
    """What to run.

    Attributes:
        spec: The target as the user named it.
        config: Its configuration; empty for the target's default.
        level: Level asked for; ``None`` for the level that the target declares.
        select: pytest ``-k`` expression, or "".
        check_timeout: Seconds per check in place of the target's, or ``None``.
        seed: Start of the generated examples; the same seed generates the same examples.
        checks: Folders and files below ``suites/`` that hold the checks.
        requirements: Only checks of these, or all.
        only: Only the checks of these ids, or all.
        turns: Times that the checks run, each from the next seed, until one of them is broken.
        effort: Share of the usual number of generated examples.
        races: Whether to run the checks that wait for an unlucky interleaving of threads.
        max_failures: Broken checks of MUSTs after which the run stops; ``None`` for no limit.
        max_hangs: Checks in which a kind of call may hang before it is given up; 0 for no limit.
    """

    spec: str
    config: Mapping[str, Any] = field(default_factory=dict)
    level: Level | None = None
    select: str = ""
    check_timeout: float | None = None
    seed: int = 0
    checks: Sequence[str] = CHECKS
    requirements: Sequence[str] = ()
    only: Sequence[str] = ()
    turns: int = 1
    effort: float = 1.0
    races: bool = True
    max_failures: int | None = None
    max_hangs: int = 3

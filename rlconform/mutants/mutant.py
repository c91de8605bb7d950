"""``Mutant``: a plane with one defect, and the decorator that makes a client class a mutant.

Each mutant is a ``Target`` that ``rlconform certify`` opens by its import path::

    rlconform certify rlconform.mutants.memory.get:DropsUnknownIds

A mutant is a built-in plane with one defect: a method that returns a wrong result, or takes two
steps where one atomic step is needed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlconform.contract import Level, Target, Timeouts

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, kw_only=True)
class Mutant(Target):
    """A plane with one defect.

    Attributes:
        wraps: Name of the built-in target that the mutant modifies.
        fails: Ids of the requirements whose checks must kill it.
        may_fail: Ids of other requirements that the defect may violate, in some checks or in
            generated examples. It violates no further requirement.
        evidence: Text that the failure of the first id in ``fails`` must contain. Otherwise, the
            mutant counts as killed for another reason.
        chance: Whether a check may miss the defect, because it shows only in a race.
        scattered: Whether only unit checks kill it, when several processes make their calls.
        interplay: Whether the scenarios of its level must kill it.
        seed: The seed of the checks when they must kill it. Scenarios run in an order that depends
            on it: with this one an early scenario shows the defect.
        several_hosts: Whether it is right on one host, and only a Ray of several hosts shows it.
        rationale: The mutant's docstring: what the plane does wrong, with incident ids.
    """

    wraps: str
    fails: tuple[str, ...]
    evidence: str
    may_fail: tuple[str, ...] = ()
    chance: bool = False
    scattered: bool = False
    interplay: bool = False
    seed: int = 0
    several_hosts: bool = False
    rationale: str = ""


def mutant_name(class_name: str) -> str:
    """Return the mutant's short name: ``DropsIds`` becomes ``drops_ids``."""
    return _WORD_START.sub("_", class_name).lower()


def mutant(
    target: Target,
    fails: str,
    *,
    evidence: str,
    may_fail: str = "",
    chance: bool = False,
    scattered: bool = False,
    interplay: bool = False,
    seed: int = 0,
    several_hosts: bool = False,
    timeouts: Timeouts | None = None,
    level: Level | None = None,
) -> Callable[[Callable[..., Any]], Mutant]:
    """Turn a client class, or a function that opens a client, into a mutant of ``target``.

        @mutant(memory.TARGET, "GET-04", evidence="never put")
        class DropsUnknownIds(MemoryClient):
            '''Leaves unknown ids out of the batch (NR-01).'''

    The mutant's name on the command line is the class name in snake case. ``Mutant``
    explains the arguments. Blanks separate ids; ``timeouts`` and ``level`` replace the target's.
    """

    def decorate(opens: Callable[..., Any]) -> Mutant:
        return Mutant(
            name=f"mutant/{mutant_name(opens.__name__)}",
            vendor="rlconform",
            open=opens,
            level=level or target.level,
            capabilities=target.capabilities,
            timeouts=timeouts or target.timeouts,
            config=target.config,
            control=target.control,
            small=target.small,
            wraps=target.name,
            fails=tuple(fails.split()),
            evidence=evidence,
            may_fail=tuple(may_fail.split()),
            chance=chance,
            scattered=scattered,
            interplay=interplay,
            seed=seed,
            several_hosts=several_hosts,
            rationale=inspect.getdoc(opens) or "",
        )

    return decorate

"""``Mutant``: a plane with one defect, and the decorator that turns a client class into one.

Each mutant is a ``Target`` that ``rlconform certify`` opens by its import path::

    rlconform certify rlconform.mutants.memory.get:DropsUnknownIds

It is a built-in plane with one defect: a method that returns a wrong result, or takes two steps
where one atomic step is needed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlconform.contract import Target, Timeouts

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, kw_only=True)
class Mutant(Target):
    """A plane with one defect.

    Attributes:
        wraps: Name of the built-in target that it modifies.
        fails: Ids of the requirements whose checks must kill it.
        may_fail: Ids of other requirements that the defect may violate, in some checks or in
            generated examples. It violates no further requirement.
        evidence: A part of the failure text of the first id of ``fails``. With another text, the
            mutant counts as killed for another reason.
        chance: Whether a check may miss the defect, because it shows only in a race.
        rationale: Its docstring: what is wrong, and where that was seen.
    """

    wraps: str
    fails: tuple[str, ...]
    evidence: str
    may_fail: tuple[str, ...] = ()
    chance: bool = False
    rationale: str = ""


def mutant_name(class_name: str) -> str:
    """The mutant's short name, from its class name: ``DropsIds`` becomes ``drops_ids``."""
    return _WORD_START.sub("_", class_name).lower()


def mutant(
    target: Target,
    fails: str,
    *,
    evidence: str,
    may_fail: str = "",
    chance: bool = False,
    timeouts: Timeouts | None = None,
) -> Callable[[Callable[..., Any]], Mutant]:
    """Turn a client class, or a function that opens a client, into a mutant of ``target``.

        @mutant(memory.TARGET, "GET-04", evidence="never put")
        class DropsUnknownIds(MemoryClient):
            '''Leaves unknown ids out of the batch (NR-01).'''

    The mutant's name on the command line is the class name in snake case. The arguments are the
    attributes of ``Mutant``, with blanks between ids; ``timeouts`` replaces those of ``target``.
    """

    def decorate(opens: Callable[..., Any]) -> Mutant:
        return Mutant(
            name=f"mutant/{mutant_name(opens.__name__)}",
            vendor="rlconform",
            open=opens,
            level=target.level,
            capabilities=target.capabilities,
            timeouts=timeouts or target.timeouts,
            config=target.config,
            control=target.control,
            wraps=target.name,
            fails=tuple(fails.split()),
            evidence=evidence,
            may_fail=tuple(may_fail.split()),
            chance=chance,
            rationale=inspect.getdoc(opens) or "",
        )

    return decorate

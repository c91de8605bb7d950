"""``Mutant``: a plane with one defect, and the decorator that makes one of a client class.

Each is a ``Target`` that ``rlconform certify`` opens by name::

    rlconform certify rlconform.mutants.memory.get:DropsUnknownIds

It is a built-in plane in all but one method, which does its work wrong, or does in two steps what
has to be one.
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
        wraps: Name of the built-in target that it is, except for the defect.
        fails: Ids of the requirements whose checks must kill it.
        may_fail: Ids of others that the defect may violate too, in some checks or in generated
            examples. It violates none beside these.
        evidence: A part of the failure text of the first id of ``fails``. Killed with another text,
            it counts as killed for another reason.
        chance: Whether a check may miss it, because it takes a race to show.
        rationale: What is wrong with it, and where that was seen: the class docstring.
    """

    wraps: str
    fails: tuple[str, ...]
    evidence: str
    may_fail: tuple[str, ...] = ()
    chance: bool = False
    rationale: str = ""


def mutant_name(class_name: str) -> str:
    """The short name of the mutant that is made of this class: ``DropsIds`` is ``drops_ids``."""
    return _WORD_START.sub("_", class_name).lower()


def mutant(
    target: Target,
    *fails: str,
    evidence: str,
    may_fail: tuple[str, ...] = (),
    chance: bool = False,
    timeouts: Timeouts | None = None,
) -> Callable[[Callable[..., Any]], Mutant]:
    """Turn a client class, or a function that opens a client, into a mutant of ``target``.

        @mutant(memory.TARGET, "GET-04", evidence="never put")
        class DropsUnknownIds(MemoryClient):
            '''Leaves unknown ids out of the batch (NR-01).'''

    Its name on the command line is the class name in snake case. The arguments are the attributes
    of ``Mutant``; ``timeouts`` replace those of ``target``.
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
            fails=fails,
            evidence=evidence,
            may_fail=may_fail,
            chance=chance,
            rationale=inspect.getdoc(opens) or "",
        )

    return decorate

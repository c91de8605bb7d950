"""Mutants: small broken planes, one realistic defect each, that the checks must catch.

Each is a ``Target`` that ``rlconform certify`` opens by name, and says of itself what it breaks::

    rlconform certify rlconform.mutants.reads:DropsUnknownIds

Around what it breaks it is a right plane: a built-in one, with one method that does its work in two
steps where it should do it in one, or does it wrong.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rlconform.contract import Target, Timeouts

_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

#: A call on a laptop's memory takes milliseconds, so that one which hangs is known soon.
IMPATIENT = Timeouts(start=10, operation=3, settle=1, quiet=0.1, check=20)


@dataclass(frozen=True, kw_only=True)
class Mutant(Target):
    """A plane with one defect.

    Attributes:
        wraps: The built-in target that it is, but for the defect.
        fails: Ids of the requirements whose checks must catch it.
        may_fail: Ids of others that may follow from the defect, in some checks or in generated
            examples; it breaks none beside these.
        evidence: A part of what the report must say of the first id of ``fails``: caught for
            another reason, it isn't.
        chance: Whether a check may miss it, as it takes a race to show.
        story: What it does wrong, and where that was seen.
    """

    wraps: str
    fails: tuple[str, ...]
    evidence: str
    may_fail: tuple[str, ...] = ()
    chance: bool = False
    story: str = ""


def broken(
    right: Target,
    *fails: str,
    says: str,
    may_fail: tuple[str, ...] = (),
    chance: bool = False,
    timeouts: Timeouts | None = None,
) -> Callable[[Callable[..., Any]], Mutant]:
    """Make a client class, or a function that opens one, the target of a plane with one defect.

        @broken(memory.TARGET, "GET-04", says="never put")
        class DropsUnknownIds(MemoryClient):
            '''Leaves unknown ids out of the batch (NR-01).'''

    Args:
        right: The target that it is, but for the defect.
        fails: Ids of the requirements whose checks must catch it.
        says: A part of the evidence for the first of them.
        may_fail: Ids of others that may follow from it.
        chance: Whether it takes a race to show.
        timeouts: Deadlines other than those of ``right``.
    """

    def made(opens: Callable[..., Any]) -> Mutant:
        words = _WORD_BEGINS.sub("_", opens.__name__).lower()
        return Mutant(
            name=f"mutant/{words}",
            vendor="rlconform",
            open=opens,
            level=right.level,
            capabilities=right.capabilities,
            timeouts=timeouts or right.timeouts,
            config=right.config,
            control=right.control,
            wraps=right.name,
            fails=fails,
            evidence=says,
            may_fail=may_fail,
            chance=chance,
            story=inspect.getdoc(opens) or "",
        )

    return made


def mutants_in(module: ModuleType) -> Iterator[tuple[str, Mutant]]:
    """The mutants of a module with their names on the command line, in the module's order."""
    for attribute, held in vars(module).items():
        if isinstance(held, Mutant):
            yield f"{module.__name__}:{attribute}", held

"""Mutants: small broken planes, one realistic defect each, that the checks must catch.

Each is a ``Target`` that ``rlconform certify`` opens by name, and says of itself what it breaks::

    rlconform certify rlconform.mutants.races:TWO_CLAIMERS

Around what it breaks it is a right plane: a built-in one, with one method that does its work in two
steps where it should do it in one, or does it wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from rlconform.contract import Target


@dataclass(frozen=True, kw_only=True)
class Mutant(Target):
    """A plane with one defect.

    Attributes:
        wraps: The built-in target that it is, but for the defect.
        fails: Ids of the requirements whose checks must catch it.
        may_fail: Ids of others that it breaks too, at times; it breaks none beside these.
        evidence: A part of what the report must say of it: caught for another reason, it isn't.
        chance: Whether a check may miss it, as it takes a race to show.
    """

    wraps: str
    fails: tuple[str, ...]
    evidence: str
    may_fail: tuple[str, ...] = ()
    chance: bool = False


def mutants_in(module: ModuleType) -> Iterator[tuple[str, Mutant]]:
    """The mutants of a module with their names on the command line, in the module's order."""
    for attribute, held in vars(module).items():
        if isinstance(held, Mutant):
            yield f"{module.__name__}:{attribute}", held

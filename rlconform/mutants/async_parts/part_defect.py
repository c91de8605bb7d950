"""``PartDefect``: a class of a part with one defect, and the rules of its judge that must find it.

::

    @part_defect("executor_answers", evidence="expected an outcome", seen="verl")
    class LostBatchForgotten(BatchingExecutor[Any, Any]):
        '''Forgets the batch of a runner that is lost.'''

The self-test lets drawn plans happen with it: ``rlconform.selftest.parts``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlconform.mutants.defect import Defect
from rlconform.mutants.mutant import mutant_name


@dataclass(frozen=True)
class PartDefect(Defect):
    """A class of a part with one defect."""


def part_defect(
    found_by: str, *, evidence: str, seen: str, may: str = ""
) -> Callable[[type], PartDefect]:
    """Make a class a defect that these rules must find; blanks separate rules."""

    def decorate(broken: type) -> PartDefect:
        return PartDefect(
            mutant_name(broken.__name__), broken, tuple(found_by.split()), evidence,
            tuple(may.split()), seen, "",
        )  # fmt: skip

    return decorate

"""``TrainerDefect``: a class of the asynchronous trainer with one defect, and how it is planted.

Each is a small subclass of a real class, with a decorator that says which rules must find it::

    @trainer_defect("staleness", evidence="versions old", seen="verl#7569")
    class SweepSkipped(ReadyFirstSampler):
        '''Takes ready groups without dropping those that are too old.'''

``planted`` puts the subclass in the place of the real one for the length of a block. All else of
the trainer is real: see ``rlconform.grpo.simulation``, which runs it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from rlconform.grpo.simulation.scenario import Scenario
from rlconform.mutants.mutant import mutant_name

#: Errors with which a defect may end its run; the log is judged all the same.
_ENDS = (RuntimeError, ValueError, LookupError, AssertionError, OSError)


@dataclass(frozen=True)
class TrainerDefect:
    """A class of the trainer with one defect.

    Attributes:
        broken: The class; its base is the real class that it replaces.
        found_by: Rules of ``check-run`` that must find it; none if ``hidden`` says why.
        evidence: Text that an anomaly of the first rule must contain.
        may: Other rules that may find its consequences; no further rule finds anything.
        seen: The field failures that it comes from.
        when: The run that shows it.
        hidden: Why no log can show it; "" if one can.
    """

    name: str
    broken: type
    found_by: tuple[str, ...]
    evidence: str
    may: tuple[str, ...]
    seen: str
    when: Scenario
    hidden: str

    @property
    def rationale(self) -> str:
        """What the trainer does wrong."""
        return inspect.getdoc(self.broken) or ""

    def write_log(self, folder: Path) -> str:
        """Run the trainer with the defect; return the error with which the run ended, or ""."""
        with planted(self.broken):
            try:
                outcome = self.when.run(folder)
            except _ENDS as error:
                return f"{type(error).__name__}: {error}"
        return "" if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}"


def trainer_defect(
    found_by: str, *, evidence: str, seen: str, may: str = "", when: Scenario | None = None
) -> Callable[[type], TrainerDefect]:
    """Make a class a defect that these rules must find; blanks separate rules."""

    def decorate(broken: type) -> TrainerDefect:
        return TrainerDefect(
            mutant_name(broken.__name__), broken, tuple(found_by.split()), evidence,
            tuple(may.split()), seen, when or Scenario(), "",
        )  # fmt: skip

    return decorate


def hidden_defect(
    why: str, *, seen: str, when: Scenario | None = None
) -> Callable[[type], TrainerDefect]:
    """Make a class a defect that no log can show, and say why."""

    def decorate(broken: type) -> TrainerDefect:
        name = mutant_name(broken.__name__)
        return TrainerDefect(name, broken, (), "", (), seen, when or Scenario(), why)

    return decorate


@contextmanager
def planted(broken: type) -> Iterator[None]:
    """Put a class in the place of its base, in all modules of the trainer that use it."""
    base = broken.__mro__[1]
    replaced = base.__name__
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("rlconform.grpo.") and vars(module).get(replaced) is base:
                stack.enter_context(patch.object(module, replaced, broken))
        yield

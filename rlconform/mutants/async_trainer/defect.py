"""``TrainerDefect``: a class of the asynchronous trainer with one defect, and how it is planted.

Each is a small subclass of a real class, with a decorator that says which rules must find it::

    @trainer_defect("staleness", evidence="versions old", seen="verl#7569")
    class SweepSkipped(ReadyFirstSampler):
        '''Takes ready groups without dropping those that are too old.'''

All else of the trainer is real: see ``rlconform.grpo.simulation``, which runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlconform.grpo.simulation.scenario import Scenario
from rlconform.mutants.defect import RunDefect
from rlconform.mutants.mutant import mutant_name


@dataclass(frozen=True)
class TrainerDefect(RunDefect):
    """A class of the trainer with one defect; ``when`` is the run that shows it.

    Rules of ``check-run`` find it in the log of that run.
    """

    when: Scenario

    def run(self, folder: Path) -> Exception | None:
        """Run the trainer; return the error with which the run ended, if its outcome has one."""
        return self.when.run(folder).error


def trainer_defect(
    found_by: str, *, evidence: str, seen: str, may: str = "", when: Scenario | None = None
) -> Callable[[type], TrainerDefect]:
    """Make a class a defect that these rules must find; blanks separate rules."""

    def decorate(broken: type) -> TrainerDefect:
        return TrainerDefect(
            mutant_name(broken.__name__), broken, tuple(found_by.split()), evidence,
            tuple(may.split()), seen, "", when or Scenario(),
        )  # fmt: skip

    return decorate


def hidden_defect(
    why: str, *, seen: str, when: Scenario | None = None
) -> Callable[[type], TrainerDefect]:
    """Make a class a defect that no log can show, and say why."""

    def decorate(broken: type) -> TrainerDefect:
        name = mutant_name(broken.__name__)
        return TrainerDefect(name, broken, (), "", (), seen, why, when or Scenario())

    return decorate

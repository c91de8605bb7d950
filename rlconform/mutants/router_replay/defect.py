"""``ReplayDefect``: a class of router replay with one defect, and how its trace is judged.

Each is a small subclass of a real class::

    @replay_defect("those of the token before", seen="slime a93386e51")
    class RoutesShiftedByOne(RouteReplayer):
        '''Gives each token the experts of the token before.'''

The step is real but for its routes: see ``rlconform.grpo.simulation.replay_step``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlconform.grpo.simulation.replay_step import ReplayScenario
from rlconform.mutants.defect import RunDefect
from rlconform.mutants.mutant import mutant_name


@dataclass(frozen=True)
class ReplayDefect(RunDefect):
    """A class of router replay with one defect; ``when`` is the step that shows it."""

    when: ReplayScenario

    def run(self, folder: Path) -> None:
        """Run the step."""
        self.when.run(folder)


def replay_defect(evidence: str, *, seen: str, options: str = "") -> Callable[[type], ReplayDefect]:
    """Make a class a defect that ``check-r3`` must find; ``options`` are those of its step."""

    def decorate(broken: type) -> ReplayDefect:
        scenario = ReplayScenario(tuple(options.split()))
        return ReplayDefect(
            mutant_name(broken.__name__), broken, ("check_r3",), evidence, (), seen, "", scenario
        )

    return decorate

"""The gate: the fewest mutants by which each requirement shows that it still catches one.

For every requirement the mutant that it catches with the fewest others beside it, alone where there
is one; then those behind the field failures that none of these plays. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlconform.mutants import Mutant

#: Ids of field failures, as a mutant's story names them.
_FAILURE = re.compile(r"\b[A-Z]{2}-\d{2}\b")


def gate_of(mutants: Mapping[str, Mutant]) -> list[str]:
    """Names of the mutants at the gate, in the order of ``mutants``."""
    wanted = dict.fromkeys(caught for mutant in mutants.values() for caught in mutant.fails)
    chosen = {_closest(mutants, requirement) for requirement in wanted}
    played = {failure for name in chosen for failure in failures_of(mutants[name])}
    for name, mutant in mutants.items():
        if new := failures_of(mutant) - played:
            chosen.add(name)
            played |= new
    return [name for name in mutants if name in chosen]


def failures_of(mutant: Mutant) -> set[str]:
    """Field failures that the mutant plays."""
    return set(_FAILURE.findall(mutant.story))


def _closest(mutants: Mapping[str, Mutant], requirement: str) -> str:
    """The mutant that ``requirement`` catches with the fewest others; the first of equals."""
    caught = [name for name, mutant in mutants.items() if requirement in mutant.fails]
    return min(caught, key=lambda name: len({*mutants[name].fails, *mutants[name].may_fail}))

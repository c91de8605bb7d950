"""All mutants by name, in the order of the contract's sections."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

import rlconform.mutants
from rlconform.mutants import Mutant, mutants_in


@cache
def catalogue() -> dict[str, tuple[str, Mutant]]:
    """Each mutant under its short name, with the name by which ``rlconform certify`` opens it.

    Raises:
        ValueError: Two mutants have one name.
    """
    found: dict[str, tuple[str, Mutant]] = {}
    for module in pkgutil.iter_modules(rlconform.mutants.__path__):
        for spec, mutant in mutants_in(import_module(f"rlconform.mutants.{module.name}")):
            name = mutant.name.removeprefix("mutant/")
            if name in found and found[name][0] != spec:
                raise ValueError(f"two mutants are called {name}: {found[name][0]} and {spec}")
            found[name] = (spec, mutant)
    return dict(sorted(found.items()))

"""Lists all mutants by name."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from rlconform.mutants import memory, ray_store
from rlconform.mutants.mutant import Mutant


@cache
def all_mutants() -> dict[str, tuple[str, Mutant]]:
    """Return each mutant and its spec for ``rlconform certify``, by the mutant's short name.

    Raises:
        ValueError: Two mutants have the same name.
    """
    found: dict[str, tuple[str, Mutant]] = {}
    for package in (memory, ray_store):
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for attribute, value in vars(import_module(info.name)).items():
                if isinstance(value, Mutant):
                    name, spec = value.name.removeprefix("mutant/"), f"{info.name}:{attribute}"
                    if name in found:
                        raise ValueError(f"{found[name][0]} and {spec} are both named {name}")
                    found[name] = (spec, value)
    return dict(sorted(found.items()))


def one_of_each_module(
    mutants: Mapping[str, tuple[str, Mutant]],
) -> dict[str, tuple[str, Mutant]]:
    """Return all mutants but those of several processes, and of these the first of each module.

    Races and mutants of several hosts stay too. One of several processes takes as long as ten of
    one process, and those of a module are alike.
    """
    chosen: dict[str, tuple[str, Mutant]] = {}
    modules: set[str] = set()
    for name, (spec, mutant) in mutants.items():
        module = spec.partition(":")[0]
        if mutant.level == "unit" or mutant.chance or mutant.several_hosts:
            chosen[name] = (spec, mutant)
        elif module not in modules:
            modules.add(module)
            chosen[name] = (spec, mutant)
    return chosen

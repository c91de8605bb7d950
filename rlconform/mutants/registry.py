"""Lists all mutants by name."""

from __future__ import annotations

import pkgutil
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

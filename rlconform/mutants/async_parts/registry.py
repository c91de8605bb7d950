"""Lists the defects of parts by name; it imports the trainer."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from rlconform.mutants import async_parts
from rlconform.mutants.async_parts.part_defect import PartDefect


@cache
def all_part_defects() -> dict[str, PartDefect]:
    """Return each defect by its name.

    Raises:
        ValueError: Two defects have the same name.
    """
    found: dict[str, PartDefect] = {}
    package = async_parts.__name__
    for info in pkgutil.iter_modules(async_parts.__path__, f"{package}."):
        if info.name == __name__:
            continue
        for value in vars(import_module(info.name)).values():
            if isinstance(value, PartDefect):
                if value.name in found:
                    raise ValueError(f"two defects are both named {value.name}")
                found[value.name] = value
    return dict(sorted(found.items()))

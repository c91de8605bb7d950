"""Lists the defects of the asynchronous trainer by name; it imports the trainer."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from rlconform.mutants import async_trainer
from rlconform.mutants.async_trainer.defect import TrainerDefect


@cache
def all_trainer_defects() -> dict[str, TrainerDefect]:
    """Return each defect by its name.

    Raises:
        ValueError: Two defects have the same name.
    """
    found: dict[str, TrainerDefect] = {}
    package = async_trainer.__name__
    for info in pkgutil.iter_modules(async_trainer.__path__, f"{package}."):
        if info.name == __name__:
            continue
        for value in vars(import_module(info.name)).values():
            if isinstance(value, TrainerDefect):
                if value.name in found:
                    raise ValueError(f"two defects are both named {value.name}")
                found[value.name] = value
    return dict(sorted(found.items()))
